"""Projection: the time of a training step of a recorded run on a larger world."""

from lab.feature import Feature

FEATURE = Feature(
    name="projection",
    needs=("faults", "network_model", "stragglers", "timeline", "traffic"),
    hooks={"trace_lines": ".cores:read_cores"},
    verbs={"project": (".project", "predict a training step with more ranks or another network", "Runs")},
)
