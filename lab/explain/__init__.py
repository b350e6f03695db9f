"""Explanations: sentences from the facts of a record."""
