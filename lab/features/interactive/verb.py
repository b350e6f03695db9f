"""`lab shell`: a shell in a node."""

from __future__ import annotations

import argparse
import sys

from lab.cli import arguments as shared
from lab.cli.cmd_exec import find_node
from lab.cluster import Cluster
from lab.engine.protocol import Console, require_capability

_SHELL = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "node0, node1, ..., or a number (default: node0)"
    shared.add_options(parser, "node", nargs="?", default="node0", help=about, complete="nodes")
    shared.add_options(parser, "--name", "--engine")


def run(arguments: argparse.Namespace) -> int:
    """Open a shell; the exit code is that of the shell."""
    cluster = Cluster(name=arguments.name, engine=arguments.engine)
    info = cluster.existing()
    console, node = require_capability(cluster.engine, Console), find_node(info, arguments.node)
    return console.execute(info, node, _SHELL, tty=sys.stdin.isatty())
