"""Functions: called on every rank of a cluster, and tests that are such functions."""

from lab.feature import Feature

FEATURE = Feature(
    name="functions",
    exports={
        "distributed": "lab.features.functions.distributed:distributed",
        "testing.cases": "lab.features.functions.cases",
    },
)
