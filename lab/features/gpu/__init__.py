"""GPU: when calls end that streams of GPUs carry out, and what `lab doctor` says of GPUs."""

from lab.feature import Feature

FEATURE = Feature(
    name="gpu", hooks={"gpu_checks": "lab.features.gpu.checks:check_gpus"}, on_node="lab.features.gpu.on_node"
)
