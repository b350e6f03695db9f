"""Snapshots: what ranks called, in a file beside a scenario or a test, that later runs are held against."""

from lab.feature import Feature

FEATURE = Feature(
    name="snapshots",
    options={"run": "lab.features.snapshots.update_option", "test": "lab.features.snapshots.update_option"},
    hooks={
        "calls_of_result": "lab.features.snapshots.recorded:RecordedCalls",
        "keep_beside_test": "lab.features.snapshots.recorded:keep_beside_test",
        "hold_against_snapshot": "lab.features.snapshots.file:hold_plan_against",
        "with_stated_calls": "lab.features.snapshots.file:with_stated_calls",
    },
)
