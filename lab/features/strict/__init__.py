"""Strict: nodes of a strict cluster reach only each other, and forget each run."""

from lab.feature import Feature

FEATURE = Feature(name="strict", on_node=".on_node")
