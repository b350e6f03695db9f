"""`lab down`: remove a cluster, whatever is left of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict

from lab.cli import arguments as shared
from lab.cli.arguments import print_answer
from lab.cluster import Cluster
from lab.engine.interrupts import defer_interrupts
from lab.engine.ownership import default_name
from lab.engine.protocol import Engine, Removed
from lab.engine.select import available_engines, select_engine
from lab.errors import EngineAbsent, EngineUnavailable
from lab.run.lock import forget_faults, was_used
from lab.spec.reading import did_you_mean
from lab.words import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_options(parser, "--name", "--engine")
    parser.add_argument("--all", action="store_true", help="remove all your clusters, on every engine")
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Remove the cluster, including what a killed command left."""
    engines, silent = available_engines(arguments.engine)
    if not engines:
        select_engine(arguments.engine)  # raises the reason
    clusters = [] if arguments.all else [Cluster(name=arguments.name, engine=engine) for engine in engines]
    removed = Removed()
    if arguments.all:
        for engine in engines:
            with defer_interrupts():
                gone = engine.remove(None, settle=True)
            for name in gone.clusters:
                forget_faults(engine.name, name)
            removed += gone
    for cluster in [one for one in clusters if one.info()] or clusters:  # else remains without nodes
        if holder := cluster.busy():
            sys.stderr.write(f"{cluster.name} is busy with {holder.get('purpose')}: removing it anyway\n")
        removed += cluster.down()
    _report_unreachable(silent, "" if arguments.all else clusters[0].name, removed)
    return print_answer(arguments, lambda: asdict(removed), lambda _: _sentence(removed, arguments.name, engines))


def _report_unreachable(silent: Mapping[str, EngineUnavailable], cluster: str, removed: Removed) -> None:
    """Warn that an engine that does not answer can still have a cluster; raise if nothing else was removed."""
    for engine, why in silent.items():
        if isinstance(why, EngineAbsent) and not was_used(engine, cluster):
            continue
        unknown = f"{why.message}; whether {f'cluster {cluster}' if cluster else 'a cluster'} still exists is unknown"
        if not removed:
            raise EngineUnavailable(unknown, why.hint)
        sys.stderr.write(f"warning: {unknown}\n")


def _sentence(removed: Removed, name: str | None, engines: list[Engine]) -> str:
    if not removed:
        up = [info.name for engine in engines for info in engine.find()]
        if name is None and up:
            commands = " or ".join(f"`lab down --name {one}`" for one in up)
            return f"nothing to remove: cluster {default_name()} is not up; for another one: {commands}"
        meant = did_you_mean(name, up) if name else ""
        return f"nothing to remove: there is no cluster {name}{meant}" if meant else "nothing to remove"
    counts = ((removed.nodes, "node"), (removed.networks, "network"), (removed.volumes, "volume"))
    parts = [format_count(count, word) for count, word in counts if count]
    return f"removed {', '.join(removed.clusters)}: {', '.join(parts) or 'files'}"
