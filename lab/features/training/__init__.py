"""Training: whether ranks train the same, the calls of DistributedDataParallel, and extra phases of ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="training",
    needs=("stragglers", "values"),
    keys={"expect.replicas": "lab.features.training.replicas:ReplicasKeys"},
    hooks={
        "expect.replicas": "lab.features.training.replicas:judge_replicas",
        "trace_lines": "lab.features.training.trace_lines:ModuleReader",
    },
    findings={
        "kinds": "lab.features.training.findings:TrainingKind",
        "counts": "lab.features.training.findings:count_phases",
        "state": "lab.features.training.replicas:find_unlike_state",
        "explain": "lab.features.training.ddp:explain_ddp",
    },
    on_node="lab.features.training.on_node",
)
