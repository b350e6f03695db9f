"""Projection: the time of a training step of a recorded run on a larger world."""

from lab.feature import Feature

FEATURE = Feature(
    name="projection",
    needs=("faults", "network_model", "stragglers", "timeline", "traffic"),
    hooks={"trace_lines": "lab.features.projection.cores:read_cores"},
    verbs={
        "project": (
            "lab.features.projection.project",
            "predict a training step with more ranks or another network",
            "Runs",
        )
    },
)
