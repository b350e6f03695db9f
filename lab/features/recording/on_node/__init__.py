"""Node code of recording: ranks that join one world after the other, threads as ranks, and errors sent to others."""

HOOKS = {"recorder": "worlds:watch_worlds"}
