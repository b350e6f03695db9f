"""Help: the docs by topic, how verbs are used, and completion of words for shells."""
