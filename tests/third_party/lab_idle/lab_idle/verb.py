"""`lab niceness FILE`: the nodes of a cluster become as nice as a scenario says."""

from __future__ import annotations

import argparse
from pathlib import Path

from lab import Cluster, LabError
from lab.cli import arguments as shared
from lab.spec.declare import get_feature_values
from lab.spec.load import load_scenario
from lab_idle.engine import NicenessControl
from lab_idle.keys import IdleKeys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, metavar="FILE", help="the scenario")
    shared.add_options(parser, "--name", "--engine")


def run(arguments: argparse.Namespace) -> int:
    niceness = get_feature_values(load_scenario(arguments.scenario), IdleKeys).niceness
    cluster = Cluster(name=arguments.name, engine=arguments.engine)
    if not isinstance(cluster.engine, NicenessControl):
        raise LabError(f"the {cluster.engine.name} engine has no niceness", "use --engine idle")
    nodes = cluster.existing().nodes
    for node in nodes:
        cluster.engine.be_nice(node, niceness)
    print(f"niceness {niceness}: {', '.join(node.name for node in nodes)}")
    return 0
