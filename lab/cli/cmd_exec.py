"""`lab exec`: run a command in a node."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab.cli import arguments as shared
from lab.cluster import Cluster
from lab.engine.protocol import Console, require_capability
from lab.errors import ClusterUnfit, UsageError
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab exec [options] NODE [--] COMMAND [ARGUMENTS]"
    parser.epilog = "Put options of lab before COMMAND: everything after it belongs to the command."
    shared.add_options(parser, "node", help="node0, node1, ..., or its number", complete="nodes")
    parser.set_defaults(rest=[], own_words=1)
    shared.add_options(parser, "--name", "--engine")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if not arguments.rest:
        raise UsageError("there is no command to run", "write it after the node, as in `lab exec node0 hostname -i`")
    cluster = Cluster(name=arguments.name, engine=arguments.engine)
    info = cluster.existing()
    node = find_node(info, arguments.node)
    tty = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    code = require_capability(cluster.engine, Console).execute(info, node, arguments.rest, tty=tty)
    if code and (script := next((one for one in arguments.rest if one.endswith(".py") and Path(one).is_file()), "")):
        sys.stderr.write(f"hint: nodes lack this folder: `lab run {script}` ships it, `lab cp` copies files\n")
    return code


def find_node(info: ClusterInfo, name: str) -> Node:
    """Return the running node of this name or number.

    Raises:
        UsageError: there is none.
        ClusterUnfit: it does not run.
    """
    (node,) = info.named(name)
    if node.state == RUNNING:
        return node
    hint = f"`lab start {node.name}`" if node.state == STOPPED else ""
    raise ClusterUnfit(f"{node.name} of cluster {info.name} is {node.state}", hint)
