"""Interactive: a shell in a node, standard input or the terminal of this process for ranks, and their debuggers."""

from lab.feature import Feature

FEATURE = Feature(
    name="interactive",
    verbs={"shell": (".verb", "open a shell in a node", "Nodes")},
    on_node=".on_node",
    hooks={
        "shared_terminal": ".terminal:SharedTerminal",
        "stdin": ".terminal:choose_stdin",
        "require_terminal": ".terminal:Keyboard.require",
    },
)
