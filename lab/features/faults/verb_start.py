"""`lab start`: start nodes of a cluster that do not run."""

from __future__ import annotations

import argparse
import sys
import time

from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.cli.progress import ProgressDisplay
from lab.cluster import Cluster
from lab.report.cluster_view import cluster_json
from lab.words import format_duration, listing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    nodes = parser.add_argument(
        "node", nargs="*", help="node0, node1, ... or its number (default: all that are stopped)"
    )
    shared.completes(nodes, "nodes")
    shared.add_cluster(parser)
    shared.add_json(parser)
    parser.add_argument("--quiet", "-q", action="store_true", help="print nothing but errors")


def run(arguments: argparse.Namespace) -> int:
    """Start them, and say which run."""
    began = time.monotonic()
    with ProgressDisplay(sys.stderr, quiet=arguments.quiet) as progress:
        cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=progress.announce)
        info = cluster.start(*arguments.node)
    if arguments.quiet and not arguments.json:
        return 0
    named = info.named(*arguments.node) if arguments.node else info.nodes
    run_now = f"{listing(node.name for node in named)} {'runs' if len(named) == 1 else 'run'}"
    told = f"cluster {info.name}: {run_now} ({format_duration(time.monotonic() - began)})"
    return answer(arguments, lambda: cluster_json(info), lambda _: told)
