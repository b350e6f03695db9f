"""Views of a run for the terminal: pure functions of its record, which need no engine."""
