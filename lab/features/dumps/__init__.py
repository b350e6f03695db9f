"""Dumps: make records from the flight recorder dumps of any job."""

from lab.feature import Feature

FEATURE = Feature(name="dumps", verbs={"import": (".verb", "import flight recorder dumps of another job", "Runs")})
