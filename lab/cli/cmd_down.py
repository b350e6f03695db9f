"""`lab down`: remove a cluster, whatever is left of it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.cluster import Cluster
from lab.engine.protocol import Removed
from lab.engine.select import available_engines
from lab.engine.uninterrupted import uninterrupted
from lab.words import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_cluster(parser)
    parser.add_argument("--all", action="store_true", help="remove every cluster of yours, on every engine")
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Remove it; what a killed command left behind goes with it."""
    removed = Removed()
    if arguments.all:
        for engine in available_engines(arguments.engine):
            with uninterrupted():
                removed += engine.remove(None, settle=True)
    else:
        for cluster in _clusters_of_that_name(arguments):
            holder = cluster.busy()
            if holder:
                sys.stderr.write(f"{cluster.name} is busy with {holder.get('purpose')}: removing it anyway\n")
            removed += cluster.down()
    return answer(arguments, lambda: asdict(removed), lambda _: _sentence(removed))


def _clusters_of_that_name(arguments: argparse.Namespace) -> list[Cluster]:
    """The cluster on the engine that was asked for; by default, on every engine that has one of that name."""
    chosen = Cluster(name=arguments.name, engine=arguments.engine, announce=lambda text: print(text, file=sys.stderr))
    if arguments.engine != "auto":
        return [chosen]
    others = [engine for engine in available_engines() if engine.name != chosen.engine.name]
    twins = [Cluster(name=arguments.name, engine=engine) for engine in others if engine.find(chosen.name)]
    return [chosen, *twins]


def _sentence(removed: Removed) -> str:
    if not removed:
        return "nothing to remove"
    counts = ((removed.nodes, "node"), (removed.networks, "network"), (removed.volumes, "volume"))
    parts = [plural(count, word) for count, word in counts if count]
    return f"removed {', '.join(removed.clusters)}: {', '.join(parts) or 'files'}"
