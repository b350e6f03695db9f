"""Help: the docs by topic."""

from lab.feature import Feature

FEATURE = Feature(
    name="help",
    verbs={
        "help": (
            "lab.features.help.verb",
            "show a topic of the docs: scenario, expect, exit-codes, environment and more",
        ),
    },
)
