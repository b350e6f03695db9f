"""`lab status`: clusters and their nodes."""

from __future__ import annotations

import argparse
from typing import Any

from lab.cli import arguments as shared
from lab.engine.protocol import Engine, MemoryMeter, PythonRunner
from lab.engine.ready import stored_bytes
from lab.engine.select import available_engines
from lab.errors import EngineAbsent, EngineUnavailable, LabError
from lab.plan.cluster import RUNNING, ClusterInfo, Node
from lab.polling import map_parallel
from lab.report.cluster_view import cluster_json, cluster_text
from lab.run.lock import read_holder, read_killed
from lab.spec.reading import did_you_mean

_MEASURE = """
import itertools, os
entries = itertools.islice(os.walk({folder!r}), {most})
print(sum(os.lstat(os.path.join(inside, name)).st_blocks * 512 for inside, _, names in entries for name in names))
"""
"""Print the disk space of the files in a folder."""
_MOST_FOLDERS = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_options(parser, "--name", "--engine", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Show each cluster, or the one of that name."""
    engines, silent = available_engines(arguments.engine)
    clusters = [(engine, info) for engine in engines for info in engine.find(arguments.name)]
    states = [_state(engine, info) for engine, info in clusters]
    return shared.print_answer(
        arguments,
        lambda: [
            {**cluster_json(info), "memory_bytes": memory, "shared_bytes": used, "stored_bytes": stored, "busy": busy}
            for info, memory, used, stored, busy in states
        ],
        lambda style: (
            "\n".join(cluster_text(*state, style, read_killed(state[0])) for state in states)
            or _nothing(arguments.name, engines, silent)
        ),
    )


def _state(engine: Engine, info: ClusterInfo) -> tuple[ClusterInfo, dict[str, int | None], int | None, int | None, Any]:
    busy = read_holder(info)
    # an agent that is still receiving its files would read a question as a part of them
    stored = None if busy else stored_bytes(engine, info)
    return info, _memory(engine, info), _shared_bytes(engine, info), stored, busy


def _nothing(name: str | None, engines: list[Engine], silent: dict[str, EngineUnavailable]) -> str:
    meant = did_you_mean(name, [info.name for engine in engines for info in engine.find()]) if name else ""
    answering = ", ".join(engine.name for engine in engines) or "none"
    reasons = "".join(f"; {why.message}" for why in silent.values() if not isinstance(why, EngineAbsent))
    return f"no cluster{f' {name}' if name else ''}{meant} (engines that answer: {answering}{reasons})"


def _memory(engine: Engine, info: ClusterInfo) -> dict[str, int | None]:
    """Return the memory use of each node, measured in parallel because each measurement mostly waits."""
    if not isinstance(engine, MemoryMeter):
        return {node.name: None for node in info.nodes}

    def used(node: Node) -> int | None:
        try:
            return engine.memory_bytes(node)
        except LabError:
            return None

    return dict(zip((node.name for node in info.nodes), map_parallel(used, info.nodes), strict=True))


def _shared_bytes(engine: Engine, info: ClusterInfo) -> int | None:
    """Return the size of the folder that all nodes share; None if it cannot be measured."""
    if not isinstance(engine, PythonRunner) or info.nodes[0].state != RUNNING:
        return None
    try:
        return int(engine.ask_python(info, _MEASURE.format(folder=info.shared, most=_MOST_FOLDERS)))
    except (LabError, ValueError):  # a file that is removed meanwhile ends the program
        return None
