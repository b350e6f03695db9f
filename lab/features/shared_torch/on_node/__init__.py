"""What runs in the container that imports torch once, and forks the agents of all nodes into theirs."""
