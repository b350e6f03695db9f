"""Removing containers, networks and volumes by their labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.direct import Refused
from lab.engine.docker.state import find_rest
from lab.engine.protocol import Removed
from lab.errors import ClusterError
from lab.waiting import wait_until
from lab.words import format_duration, listing

_DEADLINE_S = 60.0
_LOOK_S = 0.1
_GONE = 404
_IN_USE = (403, 409)


def remove(connection: Connection, filters: list[str], settle_s: float) -> Removed:
    """Remove everything that carries these labels, until nothing does.

    Args:
        connection: to the engine.
        filters: labels in Docker's `name=value` form.
        settle_s: seconds during which nothing new may appear; a client that was killed may have left a request
            that the engine is still working on.

    Raises:
        ClusterError: something could not be removed; it names that, says why, and what removes it by hand.
    """
    removed, left = Removed(), list[_Left]()
    quiet_since = time.monotonic()

    def is_quiet() -> bool:
        nonlocal removed, left, quiet_since
        once = Removed(nodes=1)
        while once:
            once, left = _remove_once(connection, filters)
            removed += once
            if once or left:
                quiet_since = time.monotonic()
        return not left and time.monotonic() - quiet_since >= settle_s

    if not wait_until(is_quiet, _DEADLINE_S, _LOOK_S):
        names = listing(f"{one.kind} {one.name}" for one in left)
        why = f": {left[0].why}" if left else ""
        raise ClusterError(
            f"the engine did not remove {names or 'everything'} within {format_duration(_DEADLINE_S)}{why}",
            _how_to_remove(connection, left),
        )
    return removed


class _Left(NamedTuple):
    """What the engine did not remove."""

    kind: str
    """As the docker command line calls it."""
    name: str
    why: str
    """In the engine's words."""


def _remove_once(connection: Connection, filters: list[str]) -> tuple[Removed, list[_Left]]:
    api = connection.api
    containers, left = connection.containers(filters), list[_Left]()

    def each(kind: str, items: list[dict[str, Any]], take_away: Callable[[dict[str, Any]], object]) -> int:
        told = connection.together(lambda item: _take(connection, lambda: take_away(item)), items)
        names = (str(item["Name"] if "Name" in item else item["Names"][0].lstrip("/")) for item in items)
        left.extend(_Left(kind, name, why) for name, (_, why) in zip(names, told, strict=True) if why)
        return sum(gone for gone, _ in told)

    def each_container(items: list[dict[str, Any]]) -> int:
        return each("container", items, lambda item: api.remove_container(item["Id"], force=True, v=True))

    zygotes = each_container([item for item in containers if label.ZYGOTE in item["Labels"]])  # it enters none any more
    nodes = each_container([item for item in containers if label.ZYGOTE not in item["Labels"]])
    networks, volumes = find_rest(connection, filters)
    names = {item["Labels"][label.CLUSTER] for item in (*containers, *networks, *volumes)}
    removed = Removed(
        clusters=tuple(sorted(names)),
        nodes=nodes or zygotes,
        networks=each("network", networks, lambda item: api.remove_network(item["Id"])),
        volumes=each("volume", volumes, lambda item: api.remove_volume(item["Name"], force=True)),
    )
    return removed, left


def _take(connection: Connection, call: Callable[[], object]) -> tuple[int, str]:
    """1 if the call removed something, and why it did not, where that is not because it was gone."""
    try:
        connection.call(call)
    except Refused as refused:
        if refused.status == _GONE:
            return 0, ""
        if refused.status in _IN_USE:  # the next round tries again
            return 0, refused.explanation
        raise
    return 1, ""


def _how_to_remove(connection: Connection, left: Sequence[_Left]) -> str:
    """What takes away by hand what keeps the first of them."""
    for kind, name, _ in left:
        if kind != "network":
            continue
        with suppress(Refused):
            users = connection.call(lambda name=name: connection.api.inspect_network(name))["Containers"] or {}  # type: ignore[misc]
            if users:
                taken = "; ".join(f"docker network disconnect --force {name} {one['Name']}" for one in users.values())
                return f"`{taken}`, then `lab down` again"
        return f"`docker network rm {name}` once nothing is on it, or once the engine was started anew"
    return f"`docker {left[0].kind} rm --force {left[0].name}`, then `lab down` again" if left else ""
