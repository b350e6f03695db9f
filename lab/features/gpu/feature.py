"""GPU: a self-test of what GPUs need, up to an all_reduce over nccl."""

from lab.feature import Feature

FEATURE = Feature(
    name="gpu", options={"doctor": "lab.features.gpu.doctor_option"}, hooks={"gpu_test": "lab.features.gpu.doctor"}
)
