"""What a record says, without what is damaged in it: the page can rely on names and types from here on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.record.read import Record


def sound_workers(record: Record) -> list[dict[str, Any]]:
    """The workers of the plan that have a rank, each with an `env`."""
    workers = [worker for worker in _items(record.plan().get("workers")) if isinstance(worker.get("rank"), int)]
    return [{**worker, "env": _mapping(worker.get("env"))} for worker in workers]


def sound_result(record: Record) -> dict[str, Any]:
    """The result, whose culprit is a mapping or None, whose ranks have numbers and notes."""
    result = record.result()
    ranks = [rank for rank in _items(result.get("ranks")) if isinstance(rank.get("rank"), int)]
    culprit = _mapping(result.get("culprit"))
    return {
        **result,
        "culprit": {"node": "", **culprit} if culprit else None,
        "ranks": [{**rank, "notes": _mapping(rank.get("notes"))} for rank in ranks],
        "expectations": [_expectation(item) for item in _items(result.get("expectations"))],
        "duration_s": _number(result.get("duration_s")),
    }


def _expectation(item: dict[str, Any]) -> dict[str, Any]:
    rank = item.get("rank")
    return {"what": "", "expected": None, "got": None, "met": False, **item, "rank": _whole(rank)}


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of(*kinds: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kinds) and not isinstance(value, bool) else None


_number = _of(int, float)
_whole = _of(int)
