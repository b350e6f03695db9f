"""Functions: call them on each rank of a cluster, and write tests that run as such functions."""

from lab.feature import Feature

FEATURE = Feature(
    name="functions",
    cluster={
        "call": ".calling:Calls.call",
        "call_as": ".calling:Calls.call_as",
        "called": ".calling:Calls.called",
        "end_calls": ".calling:Calls.end_calls",
    },
    on_node=".on_node",
    exports={"distributed": ".distributed:distributed", "testing.cases": ".distributed"},
)
