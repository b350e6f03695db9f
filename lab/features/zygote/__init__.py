"""Zygote: one process that imports torch once for many containers, and forks their agents into them."""

from lab.feature import Feature

FEATURE = Feature(name="zygote", hooks={"zygote": ".nodes"}, on_node=".on_node")
