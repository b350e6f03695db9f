"""All that is said, and how it is written: between lab and agent, agent and worker, rank and caller."""
