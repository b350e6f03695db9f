"""The alpha-beta model of a network, fitted to the all_reduces of a run."""
