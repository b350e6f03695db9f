"""Drives a plan through an engine: launch, follow, collect, judge."""
