"""Format what would run and what would be made for it, for `--dry-run`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lab.engine.protocol import Request
from lab.plan.plan import Plan, WorkerPlan
from lab.report.style import MANY, Style, group_by_kind, group_equal, mask_numbers, spans_text, table_text
from lab.run.options import DryRun
from lab.spec.launching import Starter
from lab.words import clip_end, format_count, format_duration, name_nodes

_MOST_LETTERS = 160
_SHOWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def dry_run_text(run: DryRun, style: Style) -> str:
    """Format a plan, and what would make its cluster."""
    return "\n".join(filter(None, (plan_text(run.plan, style), requests_text(run.requests))))


def requests_text(requests: Sequence[Request]) -> str:
    """Format each requested object with its properties; of several of a kind, only the first in full."""
    lines, kinds = list[str](), Counter[str]()
    for request in requests:
        kind = request.what.split()[0]
        kinds[kind] += 1
        if kinds[kind] == 1:
            lines += [f"would make {request.what}:", *_body_lines(request.body, "  ")]
        elif kinds[kind] <= MANY:
            lines.append(f"would make {request.what}, like the one before")
    lines += [f"would make {count - MANY} more of the kind {kind}" for kind, count in kinds.items() if count > MANY]
    return "\n".join(lines)


def _body_lines(body: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in body.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}:", *_body_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{name}: {clip_end(json.dumps(value), _MOST_LETTERS)}")
    return lines


def plan_text(plan: Plan, style: Style) -> str:
    """Format each worker with its node, rank, environment, and arguments, and the launcher's processes."""
    backend = f"{plan.backend}{' whatever the script names' if plan.substituted else ''}, " if plan.backend else ""
    head = (
        f"{plan.scenario.name}: {format_count(plan.nnodes, 'node')} x {format_count(plan.nproc_per_node, 'worker')} "
        f"= {format_count(plan.world_size, 'rank')}, "
        f"{'cold' if plan.cold else 'warm'}, {backend}time limit {format_duration(plan.timeout_s)}"
    )
    whole = style._replace(width=None)  # a truncated command line is useless
    tail = [f"packages: {', '.join(plan.scenario.requirements)}"] if plan.scenario.requirements else []
    tail += [f"data: {name} is {folder}" for name, folder in plan.scenario.data.items()]
    tail += [f"also in the environment: {name}={value}" for name, value in sorted(plan.scenario.env.items())]
    tail += [sentence for part in plan.parts for sentence in part.sentences()]
    if not plan.trace.on:
        tail.append("trace: off")
    elif plan.trace.values is not None:
        tail.append(f"trace: values of up to {plan.trace.values} elements a call")
    tables = [table_text(["node", *_SHOWN, "argv"], _worker_rows(plan.workers), whole)] if plan.ranks_planned else []
    if plan.starters:
        tables.append(table_text(["node", f"{plan.launcher.name} there"], _starter_rows(plan.starters), whole))
    return "\n".join([head, f"script: {plan.scenario.script}", *tables, *tail])


def _worker_rows(workers: Sequence[WorkerPlan]) -> list[list[str]]:
    """Return a row for each worker; of many, one row for those that differ only in rank and node."""

    def describe(one: WorkerPlan) -> tuple[str, ...]:
        return (*(one.env[name] for name in _SHOWN[2:]), " ".join(one.argv))

    rows = []
    for ours in group_by_kind(workers, describe):
        locals_ = spans_text({int(one.env["LOCAL_RANK"]) for one in ours})
        nodes, ranks = name_nodes(one.node for one in ours), spans_text(one.rank for one in ours)
        rows.append([nodes, ranks, locals_, *describe(ours[0])])
    return rows


def _starter_rows(starters: Sequence[Starter]) -> list[list[str]]:
    """Return a row for each starter; of many that differ only in numbers, the first ones and the last."""
    from lab.report.style import collapse_similar

    commands = [" ".join(one.argv) for one in starters]
    if len(starters) <= MANY:
        return [[one.node, words] for one, words in zip(starters, commands, strict=True)]
    shown = collapse_similar(group_equal(enumerate(commands)), mask_numbers)
    return [
        [name_nodes(starters[at].node for at in numbers), f"… {hidden} more like these" if hidden else words]
        for numbers, words, hidden in shown
    ]
