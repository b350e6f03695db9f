"""GPU: when calls end that streams of GPUs carry out."""

from lab.feature import Feature

FEATURE = Feature(name="gpu", on_node="lab.features.gpu.on_node")
