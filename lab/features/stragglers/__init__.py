"""Stragglers: ranks that made others wait, and the use of time in a run, for `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(name="stragglers", findings={"kinds": ".findings:TimeKind", "explain": ".findings:explain_time"})
