"""Strict: the network of a node of a strict cluster, which packets leave for the other nodes only."""

from lab.feature import Feature

FEATURE = Feature(name="strict", on_node="lab.features.strict.on_node")
