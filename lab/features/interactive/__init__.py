"""Interactive: a shell in a node."""
