"""Equal: whether a program computes the same with other numbers of ranks, commits, or settings."""

from lab.feature import Feature

FEATURE = Feature(
    name="equal",
    needs=("suite", "functions"),
    verbs={"equal": ("lab.features.equal.verb", "check that other numbers of ranks compute the same", "Runs")},
    keys={"expect.equal_to": "lab.features.equal.runs:EqualKeys"},
    hooks={
        "expect.equal_to": "lab.features.equal.runs:judge_equal",
        "equals_of_run": "lab.features.equal.runs:equals_for",
    },
    exports={"equal": "lab.features.equal.runs:equal"},
    on_node="lab.features.equal.on_node",
)
