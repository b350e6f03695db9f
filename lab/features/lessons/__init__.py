"""Lessons: asked, run, held against what was predicted, and kept for each person."""
