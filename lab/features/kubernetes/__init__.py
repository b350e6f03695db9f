"""Kubernetes: clusters whose nodes are pods, with agents on exec streams of the API server."""

from lab.feature import Feature

FEATURE = Feature(name="kubernetes", needs=("slurm",), engines={"kubernetes": ".engine:KubernetesEngine"})
