"""Records: runs that one command made together, the scenario of a record, and how to be rid of old records."""

from lab.feature import Feature

FEATURE = Feature(name="records", options={"runs": "lab.features.records.prune_option"})
