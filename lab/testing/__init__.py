"""Tests that run on ranks: functions with the decorator `lab.distributed`."""
