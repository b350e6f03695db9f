"""Scaffold: a first scenario, test and CI workflow."""
