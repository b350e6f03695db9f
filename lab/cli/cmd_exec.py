"""`lab exec`: run a command in a node."""

from __future__ import annotations

import argparse
import sys

from lab.cli import arguments as shared
from lab.cluster import Cluster
from lab.errors import ClusterUnfit, UsageError
from lab.plan.cluster import ClusterInfo, Node
from lab.spec.problems import did_you_mean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab exec [options] NODE [--] COMMAND [ARGUMENTS]"
    parser.epilog = "Options of lab stand before COMMAND; what follows it is the command's own."
    node = parser.add_argument("node", help="node0, node1, ... or its number")
    shared.completes(node, "nodes")
    parser.set_defaults(rest=[], own_words=1)
    shared.add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit code is the command's."""
    if not arguments.rest:
        raise UsageError("there is no command to run", "write it after the node, as in `lab exec node0 hostname -i`")
    cluster = Cluster(name=arguments.name, engine=arguments.engine)
    info = running_cluster(cluster)
    return cluster.engine.execute(info, find_node(info, arguments.node), arguments.rest, tty=_on_terminal())


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def running_cluster(cluster: Cluster) -> ClusterInfo:
    """The cluster, which has to exist.

    Raises:
        ClusterUnfit: it does not.
    """
    info = cluster.info()
    if info is None:
        meant = did_you_mean(cluster.name, [info.name for info in cluster.engine.find()])
        raise ClusterUnfit(f"there is no cluster {cluster.name}{meant}", "start it with `lab up`, or see `lab status`")
    return info


def find_node(info: ClusterInfo, name: str) -> Node:
    """The node of a name or number, which has to run.

    Raises:
        UsageError: there is none.
        ClusterUnfit: it does not run.
    """
    for node in info.nodes:
        if name in (node.name, str(node.node_rank)):
            if node.state != "running":
                raise ClusterUnfit(f"{node.name} of cluster {info.name} is not running: it is {node.state}")
            return node
    raise UsageError(f"cluster {info.name} has no node {name!r}", f"it has {', '.join(n.name for n in info.nodes)}")
