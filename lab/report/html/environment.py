"""What the run ran on: engine, nodes, versions, clocks, environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.record.read import Record
from lab.report.html.sound import sound_workers
from lab.trace.model import Trace
from lab.words import format_duration


def facts(record: Record, result: Mapping[str, Any], trace: Trace) -> list[tuple[str, str]]:
    """Name and value of everything that holds for the whole run; what is not known is left out."""
    plan = record.plan()
    ranks = [rank for rank in trace.ranks.values() if rank.recorder]
    versions = sorted({rank.torch for rank in ranks if rank.torch})
    recorders = sorted({rank.recorder for rank in ranks})
    error = f"± {format_duration(trace.clock_error_s)}" if ranks else ""
    timeout = plan.get("timeout_s")
    rows = [
        ("engine", result.get("engine")),
        ("cluster", result.get("cluster")),
        ("nodes", plan.get("nnodes")),
        ("workers on each", plan.get("nproc_per_node")),
        ("rendezvous", f"{plan['master_addr']}:{plan.get('master_port')}" if plan.get("master_addr") else ""),
        ("start", {True: "cold: fresh interpreters", False: "warm: forked from the agents"}.get(plan.get("cold", ""))),
        ("time limit", format_duration(timeout) if isinstance(timeout, (int, float)) else ""),
        ("torch", ", ".join(versions)),
        ("recorder", ", ".join(recorders) or "none: this run has no trace"),
        ("clocks agree within", error),
        ("record", str(record.path)),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def worker_rows(record: Record, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each rank: where it ran, how it ended."""
    ended = {rank["rank"]: rank for rank in result.get("ranks") or ()}
    rows = []
    for worker in sound_workers(record):
        rank = ended.get(worker["rank"], {})
        rows.append(
            {
                "rank": worker["rank"],
                "node": worker.get("node", ""),
                "local_rank": worker.get("local_rank", ""),
                "address": worker.get("address", ""),
                "end": _end(rank),
                "bad": bool(rank.get("error") or rank.get("signal") or rank.get("exit_code")) and not rank["stopped"],
                "time": format_duration(rank.get("duration_s")),
                "error": rank.get("error", ""),
            }
        )
    return rows


def _end(rank: Mapping[str, Any]) -> str:
    if rank.get("stopped"):
        return "stopped"
    if rank.get("signal"):
        return str(rank["signal"])
    return f"exit {rank['exit_code']}" if rank.get("exit_code") is not None else "not known"


def variables(record: Record) -> tuple[list[tuple[str, str]], list[str], list[tuple[int, list[str]]]]:
    """Environment variables that all workers share, names of those that differ, and their values by rank."""
    workers = [(worker["rank"], worker["env"]) for worker in sound_workers(record)]
    if not workers:
        return [], [], []
    names = sorted({str(name) for _, env in workers for name in env})
    shared = [name for name in names if len({env.get(name) for _, env in workers}) == 1]
    differing = [name for name in names if name not in shared]
    first = workers[0][1]
    rows = [(rank, [str(env.get(name, "")) for name in differing]) for rank, env in workers]
    return [(name, str(first[name])) for name in shared], differing, rows
