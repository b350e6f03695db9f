"""Watching a run that goes on: what its ranks do now, in a terminal and on a page that is pushed."""
