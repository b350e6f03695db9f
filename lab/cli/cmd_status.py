"""`lab status`: clusters and their nodes."""

from __future__ import annotations

import argparse
import json
import sys

from lab.cli import arguments as shared
from lab.engine.protocol import Engine
from lab.engine.select import available_engines, select_engine
from lab.errors import LabError
from lab.plan.cluster import ClusterInfo
from lab.report.cluster_view import cluster_json, cluster_text
from lab.report.style import style_for
from lab.run.lock import ClusterLock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `lab status` takes."""
    shared.add_cluster(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show every cluster, or the one of that name."""
    engines = available_engines() if arguments.engine == "auto" else [select_engine(arguments.engine).engine]
    found = [(engine, info) for engine in engines for info in engine.find(arguments.name)]
    if arguments.json:
        print(json.dumps([_json(engine, info) for engine, info in found]))
        return 0
    style = style_for(sys.stdout)
    for engine, info in found:
        busy = ClusterLock(info.engine, info.name).holder()
        print(cluster_text(info, _memory(engine, info), busy, style))
    if not found:
        names = ", ".join(engine.name for engine in engines) or "none"
        print(f"no cluster{f' {arguments.name}' if arguments.name else ''} (engines that answer: {names})")
    return 0


def _json(engine: Engine, info: ClusterInfo) -> dict[str, object]:
    busy = ClusterLock(info.engine, info.name).holder()
    return {**cluster_json(info), "memory_bytes": _memory(engine, info), "busy": busy}


def _memory(engine: Engine, info: ClusterInfo) -> dict[str, int | None]:
    used: dict[str, int | None] = {}
    for node in info.nodes:
        try:
            used[node.name] = engine.memory_bytes(node)
        except LabError:
            used[node.name] = None
    return used
