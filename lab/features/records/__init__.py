"""Records that belong together, and the scenarios that they were made of."""
