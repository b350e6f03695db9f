"""Interactive: a shell in a node, and the standard input or the terminal of this process for ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="interactive",
    verbs={
        "shell": ("lab.features.interactive.verb", "open a shell in a node"),
    },
    hooks={
        "stdin": "lab.features.interactive.terminal:choose_stdin",
        "require_terminal": "lab.features.interactive.keyboard:Keyboard.need",
    },
)
