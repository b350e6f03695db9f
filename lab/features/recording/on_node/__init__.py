"""Node code of recording: processes that join one world after the other, and errors that they send to others."""

HOOKS = {"recorder": "worlds:watch_worlds"}
THREADS = "lab.threads"
"""Name of a note about a thread that is a rank: its rank and its identifier."""
