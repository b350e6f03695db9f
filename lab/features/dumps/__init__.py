"""Dumps: make records from the flight recorder dumps of any job."""

from lab.feature import Feature

FEATURE = Feature(
    name="dumps",
    needs=("calls", "copy", "recording"),
    verbs={"import": (".verb", "import dumps or partial records of another job", "Runs")},
)
