"""Attach: show what the ranks of any running job do and who waits for whom, without changing the job."""

from lab.feature import Feature

FEATURE = Feature(
    name="attach",
    needs=("dumps", "recording"),
    verbs={"attach": (".verb", "show what the ranks of a running job wait for", "Runs")},
)
