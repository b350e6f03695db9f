"""Edits: run a script again at every save, and show what changed."""

from lab.feature import Feature

FEATURE = Feature(name="edits", needs=("compare",), options={"run": ".option"})
