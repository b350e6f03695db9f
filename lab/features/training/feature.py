"""Training: what ranks train, and how far it is the same on all of them."""

from lab.feature import Feature

FEATURE = Feature(name="training", on_node="lab.features.training.on_node")
