"""Stragglers: who made the others wait, and where the time of a run went."""
