"""GPU: when calls end on streams of GPUs, and the checks of `lab doctor` for GPUs."""

from lab.feature import Feature

FEATURE = Feature(name="gpu", hooks={"gpu_checks": ".checks:check_gpus"}, on_node=".on_node")
