"""Scaffold: a first scenario, test and CI workflow, and the JSON Schema by which editors check scenarios."""
