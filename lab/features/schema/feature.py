"""Schema: the JSON Schema of scenarios."""

from lab.feature import Feature

FEATURE = Feature(
    name="schema",
    verbs={
        "schema": ("lab.features.schema.verb", "print the JSON Schema of scenarios, for editors"),
    },
)
