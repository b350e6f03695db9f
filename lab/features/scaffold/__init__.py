"""Scaffold: a first scenario, test, and CI workflow, and the JSON Schema by which editors check scenarios."""

from lab.feature import Feature

_VERBS = ".verbs"
FEATURE = Feature(
    name="scaffold",
    verbs={
        "init": (f"{_VERBS}:INIT", "write a first scenario, test, and CI workflow", "Scenarios"),
        "new": (f"{_VERBS}:NEW", "write a new scenario and its script", "Scenarios"),
        "schema": (f"{_VERBS}:SCHEMA", "print the JSON Schema of scenarios, for editors", "Scenarios"),
    },
)
