"""Verdicts held against what was broken on purpose: when each fault was noticed, who was named, who was innocent.

Here alone both are known: a verdict never sees what was to be broken.
"""
