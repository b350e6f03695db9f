"""What would run and what would be made for it, for a person: what `--dry-run` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lab.engine.protocol import Request
from lab.plan.plan import Plan
from lab.report.style import Style
from lab.report.table import table_text
from lab.run.options import DryRun
from lab.words import clip, format_duration, plural

_MOST_LETTERS = 160
_SHOWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def dry_run_text(run: DryRun, style: Style) -> str:
    """A plan, and what would make its cluster."""
    return "\n".join(filter(None, (plan_text(run.plan, style), requests_text(run.requests))))


def requests_text(requests: Sequence[Request]) -> str:
    """Each thing that would be made, with all that is said of it; of several of a kind, only the first in full."""
    lines, kinds = list[str](), set[str]()
    for request in requests:
        kind = request.what.split()[0]
        alike = kind in kinds
        lines += [f"would make {request.what}{', like the one before' if alike else ':'}"]
        lines += [] if alike else _body_lines(request.body, "  ")
        kinds.add(kind)
    return "\n".join(lines)


def _body_lines(body: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in body.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}:", *_body_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{name}: {clip(json.dumps(value), _MOST_LETTERS)}")
    return lines


def plan_text(plan: Plan, style: Style) -> str:
    """Every worker with its node, rank, environment and arguments, and what starts the workers."""
    head = (
        f"{plan.scenario.name}: {plural(plan.nnodes, 'node')} x {plural(plan.nproc_per_node, 'worker')} "
        f"= {plural(plan.world_size, 'rank')}, "
        f"{'cold' if plan.cold else 'warm'}, {_backend(plan)}hung after {format_duration(plan.timeout_s)}"
    )
    whole = style._replace(width=None)  # a command line that is cut says nothing
    rows = [[worker.node, *(worker.env[name] for name in _SHOWN), " ".join(worker.argv)] for worker in plan.workers]
    tail = [f"packages: {', '.join(plan.scenario.requirements)}"] if plan.scenario.requirements else []
    tail += [f"data: {name} is {folder}" for name, folder in plan.scenario.data.items()]
    tail += [f"also in the environment: {name}={value}" for name, value in sorted(plan.scenario.env.items())]
    if plan.faults:
        from lab.fault.fault import fault_data, fault_sentence

        tail += [f"fault: {fault_sentence(fault_data(fault))}" for fault in plan.faults]
    if not plan.trace.on:
        tail.append("trace: off")
    elif plan.trace.values is not None:
        tail.append(f"trace: values of up to {plan.trace.values} elements a call")
    tables = [table_text(["node", *_SHOWN, "argv"], rows, whole)] if plan.ranks_planned else []
    if plan.starters:
        started = [[starter.node, " ".join(starter.argv)] for starter in plan.starters]
        tables.append(table_text(["node", f"{plan.launcher.name} there"], started, whole))
    return "\n".join([head, f"script: {plan.scenario.script}", *tables, *tail])


def _backend(plan: Plan) -> str:
    """The backend, if the plan has one."""
    whatever = " whatever the script names" if plan.substituted else ""
    return f"{plan.backend}{whatever}, " if plan.backend else ""
