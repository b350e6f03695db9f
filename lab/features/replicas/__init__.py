"""Replicas: whether what ranks train is the same on all of them."""
