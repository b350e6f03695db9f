"""Calls: the recorded calls of ranks, and their expected calls, from a scenario or a snapshot."""

from lab.feature import Feature

FEATURE = Feature(
    name="calls",
    keys={"expect.calls": ".pattern:CallsKeys"},
    options={"run": ".option:UPDATE", "show": ".option", "test": ".option:UPDATE"},
    hooks={
        "calls_of_result": ".snapshot:RecordedCalls",
        "use_test_snapshots": ".snapshot:use_test_snapshots",
        "expect.calls": ".snapshot:judge_calls",
        "with_stated_calls": ".snapshot:with_stated_calls",
    },
)
