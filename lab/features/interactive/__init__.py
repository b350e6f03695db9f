"""Interactive: a shell in a node, and debuggers of ranks."""
