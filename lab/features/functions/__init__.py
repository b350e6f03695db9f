"""Functions: call them on each rank of a cluster, and write tests that run as such functions."""

from lab.feature import Feature

FEATURE = Feature(
    name="functions",
    cluster={
        "call": "lab.features.functions.calling:Calls.call",
        "call_as": "lab.features.functions.calling:Calls.call_as",
        "called": "lab.features.functions.calling:Calls.called",
        "end_calls": "lab.features.functions.calling:Calls.end_calls",
    },
    on_node="lab.features.functions.on_node",
    exports={
        "distributed": "lab.features.functions.distributed:distributed",
        "testing.cases": "lab.features.functions.distributed",
    },
)
