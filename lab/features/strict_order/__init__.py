"""Strict order: run a script on gloo by the rules of a strict transport, and find what passed by luck."""

from lab.feature import Feature

FEATURE = Feature(
    name="strict_order",
    keys={"strict_order": ".option:StrictOrderKeys"},
    options={"run": ".option:OPTION", "test": ".option:OPTION"},
    hooks={"trace_lines": ".findings:StrictOrderReader"},
    findings={"kinds": ".findings:StrictOrderKind", "explain": ".findings:explain_strict_order"},
    parts=(".option:plan_strict_order",),
    on_node=".on_node",
)
