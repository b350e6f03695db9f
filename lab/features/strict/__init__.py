"""Strict: the network of a node of a strict cluster, which packets leave for the other nodes only."""
