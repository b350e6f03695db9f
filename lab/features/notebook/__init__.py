"""Notebook: a result as a notebook shows it."""
