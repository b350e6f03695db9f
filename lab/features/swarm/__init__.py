"""Swarm: clusters that are spread over the hosts of a Docker Swarm."""

from lab.feature import Feature

FEATURE = Feature(name="swarm", needs=("image",), engines={"swarm": "lab.features.swarm.engine:SwarmEngine"})
