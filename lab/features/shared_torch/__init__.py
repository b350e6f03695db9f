"""Shared torch: one container imports torch for all nodes of a large cluster, and forks their agents."""
