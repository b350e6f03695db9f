"""Stragglers: ranks that made others wait, and the use of time in a run, for `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="stragglers",
    findings={
        "kinds": "lab.features.stragglers.findings:TimeKind",
        "explain": "lab.features.stragglers.findings:explain_time",
    },
)
