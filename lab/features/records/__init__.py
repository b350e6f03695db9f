"""Records: suites of runs, the scenario of a record, and removing old records."""

from lab.feature import Feature

FEATURE = Feature(name="records", options={"runs": ".prune_option"})
