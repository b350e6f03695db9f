"""The swarm engine: a node is a task of a Docker Swarm, a container on one of several hosts."""
