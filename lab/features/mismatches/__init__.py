"""Mismatches: what ranks called differently, left out, or called once more, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="mismatches",
    findings={
        "words": "lab.features.mismatches.findings:WORDS",
        "disagreements": "lab.features.mismatches.findings:disagreements",
    },
)
