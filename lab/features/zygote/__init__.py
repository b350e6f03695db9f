"""Zygote: one process that imports torch once for many containers, and forks their agents into them."""

from lab.feature import Feature

FEATURE = Feature(name="zygote", hooks={"zygote": "lab.features.zygote.nodes"}, on_node="lab.features.zygote.on_node")
