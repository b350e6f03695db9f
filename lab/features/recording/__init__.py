"""Recording: put any command on record, and diagnose the worlds of ranks that its processes form."""

from lab.feature import Feature

FEATURE = Feature(
    name="recording",
    verbs={"record": (".verb", "run any command, record its ranks, and judge them", "Runs")},
    on_node=".on_node",
    hooks={"standstill": ".standstill:Standstill"},
)
