"""Tests that run on ranks: functions that are marked as distributed."""
