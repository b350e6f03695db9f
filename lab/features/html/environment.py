"""What the run ran on: engine, nodes, versions, clocks, environment variables."""

from __future__ import annotations

from lab.record.read import Record
from lab.record.result import Result
from lab.trace.model import Trace
from lab.words import format_duration


def facts(record: Record, result: Result, trace: Trace) -> list[tuple[str, str]]:
    """Name and value of everything that holds for the whole run; what is not known is left out."""
    plan = record.plan()
    ranks = [rank for rank in trace.ranks.values() if rank.recorder]
    versions = sorted({rank.torch for rank in ranks if rank.torch})
    recorders = sorted({rank.recorder for rank in ranks})
    error = f"± {format_duration(trace.clocks.error_s)}" if ranks else ""
    rows = [
        ("engine", result.engine),
        ("cluster", result.cluster),
        ("nodes", plan.nnodes),
        ("workers on each", plan.nproc_per_node),
        ("rendezvous", f"{plan.master_addr}:{plan.master_port}" if plan.master_addr else ""),
        ("start", {True: "cold: fresh interpreters", False: "warm: forked from the agents", None: ""}[plan.cold]),
        ("time limit", format_duration(plan.timeout_s) if plan.timeout_s is not None else ""),
        ("torch", ", ".join(versions)),
        ("recorder", ", ".join(recorders) or "none: this run has no trace"),
        ("clocks agree within", error),
        ("record", str(record.path)),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def variables(record: Record) -> tuple[list[tuple[str, str]], list[str], list[tuple[int, list[str]]]]:
    """Environment variables that all workers share, names of those that differ, and their values by rank."""
    workers = record.plan().workers
    if not workers:
        return [], [], []
    names = sorted({name for worker in workers for name in worker.env})
    shared = [name for name in names if len({worker.env.get(name) for worker in workers}) == 1]
    differing = [name for name in names if name not in shared]
    rows = [(worker.rank, [worker.env.get(name, "") for name in differing]) for worker in workers]
    return [(name, workers[0].env[name]) for name in shared], differing, rows
