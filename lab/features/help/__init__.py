"""Help: the docs by topic."""
