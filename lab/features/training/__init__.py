"""Training: whether ranks train the same, the calls of DistributedDataParallel, and extra phases of ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="training",
    needs=("stragglers", "values"),
    keys={"expect.replicas": ".replicas:ReplicasKeys"},
    hooks={"expect.replicas": ".replicas:judge_replicas", "trace_lines": ".trace_lines:ModuleReader"},
    findings={
        "kinds": ".findings:TrainingKind",
        "counts": ".findings:count_phases",
        "state": ".replicas:find_unlike_state",
        "explain": ".ddp:explain_ddp",
    },
    on_node=".on_node",
)
