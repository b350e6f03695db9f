"""Where things are in a record."""

from __future__ import annotations

from pathlib import Path

RUNS = Path(".lab") / "runs"
SCENARIO = "scenario.yaml"
PLAN = "plan.json"
EVENTS = "events.jsonl"
RESULT = "result.json"
LOGS = "logs"
INDEX = "logs/index.jsonl"
"""One line a piece of output, in the order of arrival: [rank, stream, offset, bytes, time]."""
TRACE = "trace"
CHECK_LOG = "check.log"
MOST_RANKS = 1 << 20
"""No run has more: a rank from here on is damage."""


def rank_log(rank: int) -> str:
    """Name of a rank's log; rank -1 is the scenario's own check."""
    return f"rank{rank}.log" if rank >= 0 else CHECK_LOG


def rank_trace(rank: int) -> str:
    """Name of a rank's trace."""
    return f"rank{rank}.jsonl"
