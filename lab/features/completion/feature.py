"""Completion of words for shells."""

from lab.feature import Feature

FEATURE = Feature(
    name="completion",
    needs=("help",),
    verbs={
        "completion": ("lab.features.completion.verb", "print a completion script for your shell"),
    },
)
