"""The docker engine: a node is a container."""
