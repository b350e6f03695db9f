"""Replicas: whether what ranks train is the same on all of them."""

from lab.feature import Feature

FEATURE = Feature(
    name="replicas",
    keys={"expect.replicas": "lab.features.replicas.equal:ReplicasKeys"},
    hooks={"expect.replicas": "lab.features.replicas.equal:judge_replicas"},
)
