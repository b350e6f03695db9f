"""Score: compare verdicts with the injected faults."""

from lab.feature import Feature

FEATURE = Feature(
    name="score",
    needs=("faults", "records"),
    verbs={"score": (".verb", "compare verdicts with the faults that were injected", "Runs")},
)
