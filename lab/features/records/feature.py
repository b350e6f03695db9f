"""Records: runs that one command made together, and the scenario and scripts of a record, for all who compare runs."""

from lab.feature import Feature

FEATURE = Feature(name="records")
