"""`lab stop`: stop nodes of a cluster, as a power cut would."""

from __future__ import annotations

import argparse

from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.cluster import Cluster
from lab.report.cluster_view import cluster_json
from lab.words import listing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "A run that goes on loses them. They stay stopped until `lab start` or `lab up`."
    nodes = parser.add_argument("node", nargs="+", help="node0, node1, ... or its number")
    shared.completes(nodes, "nodes")
    shared.add_cluster(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Stop them, and say which are."""
    cluster = Cluster(name=arguments.name, engine=arguments.engine)
    info = cluster.stop(*arguments.node)
    named = info.named(*arguments.node)
    told = f"cluster {info.name}: {listing(node.name for node in named)} {'is' if len(named) == 1 else 'are'} stopped"
    return answer(arguments, lambda: cluster_json(info), lambda _: told)
