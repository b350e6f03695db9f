"""A plan for a person: what `--dry-run` prints."""

from __future__ import annotations

from dataclasses import replace

from lab.plan.plan import Plan
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import format_duration, plural

_SHOWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def plan_text(plan: Plan, style: Style) -> str:
    """Every worker with its node, rank, environment and arguments."""
    head = (
        f"{plan.scenario.name}: {plural(plan.nnodes, 'node')} x {plural(plan.nproc_per_node, 'process', 'processes')} "
        f"= {plural(plan.world_size, 'rank')}, "
        f"{'cold' if plan.cold else 'warm'}, {plan.backend}, hung after {format_duration(plan.timeout_s)}"
    )
    whole = replace(style, width=None)  # a command line that is cut says nothing
    rows = [[worker.node, *(worker.env[name] for name in _SHOWN), " ".join(worker.argv)] for worker in plan.workers]
    tail = [f"also in the environment: {name}={value}" for name, value in sorted(plan.scenario.env.items())]
    if not plan.trace.on:
        tail.append("trace: off")
    elif plan.trace.values is not None:
        tail.append(f"trace: values of up to {plan.trace.values} elements a call")
    return "\n".join(
        [head, f"script: {plan.scenario.script}", table_text(["node", *_SHOWN, "argv"], rows, whole), *tail]
    )
