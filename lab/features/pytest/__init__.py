"""The plugin for pytest, with its own entry point: warm clusters as fixtures, scenarios as tests."""

from lab.feature import Feature

FEATURE = Feature(
    name="pytest",
    needs=("faults", "functions", "suite", "records", "recording"),
    hooks={"remove_orphans": ".guard:remove_orphans"},
)
