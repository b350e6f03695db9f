"""Snapshots: what ranks called, in a file beside a scenario or a test, that later runs are held against."""
