"""Calls: what ranks are expected to call, as a scenario states it, or as a snapshot has it."""

from lab.feature import Feature

FEATURE = Feature(
    name="calls",
    keys={"expect.calls": "lab.features.calls.keys:CallsKeys"},
    options={
        "run": "lab.features.calls.update_option",
        "test": "lab.features.calls.update_option",
        "show": "lab.features.calls.show_option",
    },
    hooks={
        "calls_of_result": "lab.features.calls.recorded:RecordedCalls",
        "keep_beside_test": "lab.features.calls.recorded:keep_beside_test",
        "expect.calls": "lab.features.calls.file:judge_calls",
        "with_stated_calls": "lab.features.calls.file:with_stated_calls",
    },
)
