"""The folder of a run: append-only facts, from which every view is derived."""
