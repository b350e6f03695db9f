"""`lab up`: start a cluster."""

from __future__ import annotations

import argparse
import json
import time

from lab.cli import arguments as shared
from lab.cluster import Cluster
from lab.node.messages.agent import NOTES_BYTES, OUTPUT_BYTES, STRICT_NOTES_BYTES
from lab.node.trace_file import LIMIT_BYTES
from lab.report.cluster_view import cluster_json, node_rows
from lab.words import format_count, format_duration, format_limit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=shared.positive, help="how many nodes (default: 3)")
    about = "ranks on each node, if a scenario does not set it (default: 1)"
    parser.add_argument("--nproc-per-node", type=shared.positive, help=about)
    shared.add_options(parser, "--name", "--engine", *shared.SHAPE, "--wait", "--json")
    parser.add_argument("--verbose", action="store_true", help="print the limits of each node and rank")
    shared.add_options(parser, "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Start the cluster, or print that it is already up."""
    began = time.monotonic()
    with shared.Progress(quiet=arguments.quiet) as progress:
        asked = {name: getattr(arguments, name) for name in ("nodes", "nproc_per_node", "name", "engine")}
        cluster = Cluster(**asked, announce=progress.announce, **shared.shape_arguments(arguments))
        info, made = cluster.up(wait_s=arguments.wait_s)
    if arguments.json:
        print(json.dumps({**cluster_json(info), "made": made}))
    elif not arguments.quiet:
        count = format_count(len(info.nodes), "node")
        how = f"up in {format_duration(time.monotonic() - began)}" if made else "already up in this shape"
        print(f"cluster {info.name} ({info.engine}): {count} {how}")
        print("\n".join(f"  {name}  {address}" for name, address in node_rows(info)))
        if arguments.verbose:
            print(f"  each node: {info.limits.describe()}")
            notes_bytes = STRICT_NOTES_BYTES if info.shape.strict else NOTES_BYTES
            kept = {"output": OUTPUT_BYTES, "notes": notes_bytes, "trace": LIMIT_BYTES}
            print(f"  each rank: {', '.join(f'{format_limit(limit)} of {what}' for what, limit in kept.items())}")
    return 0
