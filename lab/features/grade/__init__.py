"""Grading: submissions of strangers, each run in the place of a scenario's script, and what each of them earned."""
