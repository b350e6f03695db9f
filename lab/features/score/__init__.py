"""Score: verdicts held against what was broken on purpose."""

from lab.feature import Feature

FEATURE = Feature(
    name="score",
    needs=("faults", "records"),
    verbs={
        "score": (
            "lab.features.score.verb",
            "hold verdicts against what was broken on purpose: right culprit, right kind, time until it was noticed",
        ),
    },
)
