"""Arguments that several verbs share, and how their words become values."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lab.cli import argument_types as types
from lab.engine.select import AUTO, CHOICES
from lab.record.layout import RUNS

if TYPE_CHECKING:
    from lab.cli.call import Parser

T = TypeVar("T")


def add_svg(parser: Parser) -> None:
    """`--svg`, once, whoever draws."""
    if not parser.knows("--svg"):
        text = "with what draws a picture: write it to a file instead"
        parser.add_argument("--svg", type=Path, metavar="FILE", help=text)


def completes(argument: argparse.Action, names: str) -> None:
    """Let shells complete an argument with names of this kind (`lab.features.completion.verb`)."""
    vars(argument)["complete"] = names  # `lab completion` makes of it what shtab wants


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """`--name` and `--engine`."""
    name = parser.add_argument("--name", metavar="CLUSTER", help="cluster; default: the one of the current folder")
    completes(name, "clusters")
    add_engine(parser, "what provides nodes (default: auto)")


def add_engine(parser: argparse.ArgumentParser, text: str) -> None:
    """`--engine`."""
    engine = parser.add_argument("--engine", default=AUTO, metavar="", help=text)
    engine.choices, engine.metavar = CHOICES, None  # not at once: argparse would ask for all that there are


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_runs(parser: argparse.ArgumentParser) -> None:
    """`--runs`."""
    parser.add_argument(
        "--runs", type=Path, default=RUNS, metavar="FOLDER", help=f"folder of all runs (default: {RUNS})"
    )


def add_raw(parser: argparse.ArgumentParser) -> None:
    """`--raw`."""
    parser.add_argument(
        "--raw", action="store_true", help="print what ranks wrote as it is, with all that acts on a terminal"
    )


def add_wait(parser: argparse.ArgumentParser) -> None:
    """`--wait`."""
    parser.add_argument(
        "--wait",
        dest="wait_s",
        type=types.duration,
        default=0.0,
        metavar="TIME",
        help="wait this long for a cluster that is busy, e.g. 60s",
    )


def add_size(parser: argparse.ArgumentParser) -> None:
    """`--nodes` and `--nproc-per-node` of a run."""
    parser.add_argument("--nodes", type=types.positive, help="nodes that take part")
    parser.add_argument("--nproc-per-node", type=types.positive, help="workers on each node")


def add_conduct(parser: argparse.ArgumentParser) -> None:
    """`--cold` and `--timeout`."""
    parser.add_argument("--cold", action="store_true", help="start fresh interpreters, do not fork the warm agents")
    parser.add_argument(
        "--timeout",
        dest="timeout_s",
        type=types.duration,
        metavar="TIME",
        help="call the run hung after this long, e.g. 90s; not counted while ranks are held, nor until a launcher "
        "has started one, a minute at most",
    )


def add_trace_values(container: argparse._ActionsContainer) -> None:
    """`--trace-values`."""
    container.add_argument(
        "--trace-values",
        type=types.trace_values,
        metavar="N",
        help="record up to N elements on each side of a call, of larger ones a summary; 0: neither (default: 256)",
    )


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Everything that makes the shape of a cluster, except its size."""
    parser.add_argument("--image", help="image of the nodes; anything with Python >= 3.9 and torch")
    add_requirements(parser)
    parser.add_argument(
        "--data",
        type=types.data,
        action=types.OncePerName,
        default={},
        metavar="NAME=FOLDER",
        help="a folder of this machine that ranks read as $LAB_DATA/NAME",
    )
    parser.add_argument("--cpus", type=types.positive_float, help="CPU cores a node may use")
    parser.add_argument(
        "--memory",
        dest="memory_bytes",
        type=types.size,
        metavar="SIZE",
        help="memory a node may use, e.g. 1GiB (default on Docker: its part of 80%% of the machine's)",
    )
    parser.add_argument(
        "--max-processes",
        dest="processes",
        type=types.positive,
        metavar="N",
        help="processes and threads a node may have (default on Docker: 512, and 256 for each core of the machine)",
    )
    parser.add_argument(
        "--disk",
        dest="disk_bytes",
        type=types.size,
        metavar="SIZE",
        help="what a run may write on a node (default on Docker: its part of half of what is free; 256MiB if strict)",
    )
    parser.add_argument("--gpus", type=types.positive, help="GPUs of each node")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="for scripts that nobody trusts: no way out of the cluster, read-only nodes, no volumes, tight limits",
    )
    parser.add_argument(
        "--volume",
        dest="volumes",
        type=types.volume,
        action="append",
        default=[],
        metavar="HOST:NODE[:ro]",
        help="a host folder for every node",
    )
    parser.add_argument(
        "--env",
        type=types.variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment of every worker",
    )
    parser.add_argument(
        "--hosts",
        type=types.hosts,
        default=(),
        metavar="A,B",
        help="hosts that nodes are spread over (swarm, slurm; default: all that there are)",
    )
    parser.add_argument(
        "--allocation",
        type=types.scheduled,
        action=types.OncePerName,
        default={},
        metavar="NAME=VALUE",
        help="an option of the scheduler by its long name, e.g. partition=gpu, time=30:00, account=me (slurm)",
    )


def add_requirements(parser: argparse.ArgumentParser) -> None:
    """`--requirements`."""
    parser.add_argument(
        "--requirements",
        type=types.requirements,
        default=(),
        metavar="FILE",
        help="packages for the nodes, as in pip's requirements.txt, besides those that they have",
    )


def shape_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_shape` took, as `Cluster` wants it."""
    names = ("image", "requirements", "data", "cpus", "memory_bytes", "processes", "disk_bytes", "gpus", "strict")
    said = {name: getattr(arguments, name) for name in (*names, "hosts", "allocation")}
    return {**said, "volumes": tuple(arguments.volumes), "env": dict(arguments.env)}


def fields_said(kind: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the arguments say of the fields of a dataclass, as its constructor takes it."""
    return {field.name: getattr(arguments, field.name) for field in fields(kind) if hasattr(arguments, field.name)}
