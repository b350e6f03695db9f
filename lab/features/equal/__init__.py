"""Equal: whether a program computes the same with other numbers of ranks, commits, or settings."""

from lab.feature import Feature

FEATURE = Feature(
    name="equal",
    verbs={"equal": ("lab.features.equal.verb", "check that other numbers of ranks compute the same", "Runs")},
    on_node="lab.features.equal.on_node",
)
