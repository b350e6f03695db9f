"""Faults: what can be broken on purpose, the event that sets it off, and how each kind is done and undone."""
