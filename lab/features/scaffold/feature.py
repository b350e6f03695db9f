"""Scaffold: a first scenario, test and CI workflow."""

from lab.feature import Feature

FEATURE = Feature(
    name="scaffold",
    verbs={
        "init": ("lab.features.scaffold.verb_init", "write a first scenario, test and CI workflow into a repository"),
        "new": ("lab.features.scaffold.verb_new", "write a scenario and its script to start from"),
    },
)
