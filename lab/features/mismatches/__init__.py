"""Mismatches: what ranks called differently, skipped, or called once more, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(name="mismatches", findings={"disagreements": "lab.features.mismatches.findings:find_disagreements"})
