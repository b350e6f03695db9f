"""Interactive: a shell in a node, and the standard input or the terminal of this process for ranks."""
