"""Interactive: a shell in a node."""

from lab.feature import Feature

FEATURE = Feature(
    name="interactive",
    verbs={
        "shell": ("lab.features.interactive.verb", "open a shell in a node"),
    },
)
