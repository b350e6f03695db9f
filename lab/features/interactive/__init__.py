"""Interactive: a shell in a node, standard input or the terminal of this process for ranks, and their debuggers."""
