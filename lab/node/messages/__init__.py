"""The messages between lab and agent, agent and worker, rank and caller, and their encoding."""
