"""Help: the docs by topic, how verbs are used, and completion of words for shells."""

from lab.feature import Feature

FEATURE = Feature(
    name="help",
    verbs={
        "completion": ("lab.features.help.verb_completion", "print a completion script for your shell"),
        "help": (
            "lab.features.help.verb",
            "show a topic of the docs: scenario, expect, exit-codes, environment and more",
        ),
    },
)
