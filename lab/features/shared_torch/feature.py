"""Shared torch: one container imports torch for all nodes of a large cluster, and forks their agents."""

from lab.feature import Feature

FEATURE = Feature(
    name="shared_torch",
    hooks={"zygote": "lab.features.shared_torch.zygote"},
    on_node="lab.features.shared_torch.on_node",
)
