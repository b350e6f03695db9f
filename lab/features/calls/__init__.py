"""Calls: what ranks are expected to call, as a scenario states it, or as a snapshot has it."""
