"""Strict: nodes of a strict cluster can send packets only to each other."""

from lab.feature import Feature

FEATURE = Feature(name="strict", on_node=".on_node")
