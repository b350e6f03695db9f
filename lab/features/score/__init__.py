"""Score: verdicts held against what was broken on purpose."""

from lab.feature import Feature

FEATURE = Feature(
    name="score",
    needs=("faults", "records"),
    verbs={
        "score": ("lab.features.score.verb", "compare verdicts with the faults that were injected", "Runs"),
    },
)
