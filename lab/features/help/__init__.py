"""Help: the docs by topic, how verbs are used, and completion of words for shells."""

from lab.feature import Feature

FEATURE = Feature(
    name="help",
    verbs={
        "completion": (".verb_completion", "print a completion script for your shell", "Setup"),
        "help": (".verb", "show the docs by topic", "Setup"),
    },
)
