"""Mismatches: calls that ranks made differently, skipped, or repeated, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="mismatches",
    needs=("values",),
    findings={"disagreements": ".findings:find_disagreements"},
    hooks={"trace_lines": ".findings:read_handled_errors"},
)
