"""GPU: what `lab doctor` says of GPUs."""

from lab.feature import Feature

FEATURE = Feature(name="gpu", hooks={"gpu_checks": "lab.features.gpu.checks:check_gpus"})
