"""The events of a record, as the collector writes them; times are seconds from the start of a made trace."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

from lab.diagnosis.finding import Finding, fields_of, to_plain
from lab.record.layout import EVENTS
from tests.traces import TraceMaker

_ORIGIN = 1_700_000_000.0
WORK = "/var/lab/run/work"


def write_events(made: TraceMaker, *events: dict[str, Any]) -> None:
    """Put events into the record that is being made."""
    (made.path / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))


def stack(
    rank: int, line: int, call: str = "", at: float = 8.0, inner: str = "torch/distributed/x.py"
) -> dict[str, Any]:
    """Where a rank was when the run was found hung; inside a function of PyTorch, or not."""
    frame = f'  File "/x/{inner}", line 50 in {call}\n' if call else ""
    text = f'Thread 0x00007f (most recent call first):\n{frame}  File "{WORK}/train.py", line {line} in main\n'
    return {"event": "stack", "rank": rank, "text": text, "time": _ORIGIN + at}


def exited(rank: int, code: int | None = 0, at: float = 9.0, **more: Any) -> dict[str, Any]:
    """A rank ended by itself."""
    facts = {"code": code, "signal": None, "stopped": False, "error": "", "traceback": "", "raised": None, **more}
    return {"event": "exited", "rank": rank, "node": f"node{rank}", "time": _ORIGIN + at, **facts}


def stopped(rank: int, at: float = 9.0) -> dict[str, Any]:
    """A rank was ended by the lab."""
    return exited(rank, None, at, signal="SIGKILL", stopped=True)


def raised(rank: int, error: str, line: int, at: float = 5.0) -> dict[str, Any]:
    """A rank raised at a line of its script."""
    traceback = f'Traceback (most recent call last):\n  File "{WORK}/train.py", line {line}, in main\n{error}\n'
    return exited(rank, 1, at + 0.1, error=error, traceback=traceback, raised=_ORIGIN + at)


def hang(made: TraceMaker, *stacks: dict[str, Any]) -> None:
    """Every rank told its stack and was stopped."""
    write_events(made, *stacks, *(stopped(told["rank"]) for told in stacks))


def told_facts(finding: Finding) -> dict[str, Any]:
    """What the facts of a finding tell besides what every finding has, without what is as by default."""
    return {name: value for name, value in _unusual(finding).items() if name not in fields_of(Finding)}


def _unusual(facts: Any) -> Any:
    """A value of facts as plain data, of dataclasses only what is not as by default."""
    if isinstance(facts, (tuple, list)):
        return [_unusual(one) for one in facts]
    if not is_dataclass(facts):
        return to_plain(facts)
    values = {one.metadata.get("key", one.name): (getattr(facts, one.name), one.default) for one in fields(facts)}
    return {name: _unusual(value) for name, (value, default) in values.items() if value not in (default, (), {})}
