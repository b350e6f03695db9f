"""Interactive: a shell in a node, standard input or the terminal of this process for ranks, and their debuggers."""

from lab.feature import Feature

FEATURE = Feature(
    name="interactive",
    verbs={
        "shell": ("lab.features.interactive.verb", "open a shell in a node", "Nodes"),
    },
    on_node="lab.features.interactive.on_node",
    hooks={
        "shared_terminal": "lab.features.interactive.terminal:SharedTerminal",
        "stdin": "lab.features.interactive.terminal:choose_stdin",
        "require_terminal": "lab.features.interactive.terminal:Keyboard.require",
    },
)
