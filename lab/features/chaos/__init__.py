"""Chaos: search for faults that a scenario does not survive."""

from lab.feature import Feature

FEATURE = Feature(name="chaos", needs=("faults", "suite"), options={"run": ".option"})
