"""The alpha-beta model of a network, fitted to the all_reduces of a run."""

from lab.feature import Feature

FEATURE = Feature(name="network_model", needs=("records", "stragglers", "traffic"), options={"show": ".option"})
