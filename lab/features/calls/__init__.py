"""Calls: the recorded calls of ranks, and their expected calls, from a scenario or a snapshot."""

from lab.feature import Feature

FEATURE = Feature(
    name="calls",
    keys={"expect.calls": "lab.features.calls.pattern:CallsKeys"},
    options={
        "run": "lab.features.calls.option:UPDATE",
        "show": "lab.features.calls.option",
        "test": "lab.features.calls.option:UPDATE",
    },
    hooks={
        "calls_of_result": "lab.features.calls.snapshot:RecordedCalls",
        "use_test_snapshots": "lab.features.calls.snapshot:use_test_snapshots",
        "expect.calls": "lab.features.calls.snapshot:judge_calls",
        "with_stated_calls": "lab.features.calls.snapshot:with_stated_calls",
    },
)
