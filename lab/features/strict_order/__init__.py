"""Strict order: run a script on gloo by the rules of a strict transport, and find what passed by luck."""

from lab.feature import Feature

_HOME = "lab.features.strict_order"
FEATURE = Feature(
    name="strict_order",
    keys={"strict_order": f"{_HOME}.option:StrictOrderKeys"},
    options={"run": f"{_HOME}.option:OPTION", "test": f"{_HOME}.option:OPTION"},
    hooks={"trace_lines": f"{_HOME}.findings:RejectionReader"},
    findings={
        "kinds": f"{_HOME}.findings:StrictOrderKind",
        "explain": f"{_HOME}.findings:explain_strict_order",
    },
    parts=(f"{_HOME}.option:plan_strict_order",),
    on_node=f"{_HOME}.on_node",
)
