"""Stragglers: who made the others wait, and where the time of a run went, for `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="stragglers",
    findings={
        "kinds": "lab.features.stragglers.findings:TimeKind",
        "explain": "lab.features.stragglers.findings:explain_time",
    },
)
