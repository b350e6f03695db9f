"""Interactive: a shell in a node, and debuggers of ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="interactive",
    verbs={
        "shell": ("lab.features.interactive.verb", "open a shell in a node"),
    },
    on_node="lab.features.interactive.on_node",
)
