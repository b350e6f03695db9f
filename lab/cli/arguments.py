"""Arguments that several verbs share, and how their words become values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lab.engine.select import CHOICES
from lab.errors import LabError
from lab.keys.units import parse_age, parse_duration, parse_size
from lab.record.layout import RUNS
from lab.spec.scenario import MAX_TRACE_VALUES

if TYPE_CHECKING:
    from lab.spec.volumes import Volume

T = TypeVar("T")


def completes(argument: argparse.Action, names: str) -> None:
    """Let shells complete an argument with names of this kind (`lab.cli.names`)."""
    vars(argument)["complete"] = names  # `lab completion` makes of it what shtab wants


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """`--name` and `--engine`."""
    name = parser.add_argument("--name", metavar="CLUSTER", help="cluster; default: the one of the current folder")
    completes(name, "clusters")
    parser.add_argument("--engine", choices=CHOICES, default="auto", help="what provides nodes (default: auto)")


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
        type=duration,
        default=0.0,
        metavar="TIME",
        help="wait this long for a cluster that is busy, e.g. 60s",
    )


def add_size(parser: argparse.ArgumentParser) -> None:
    """`--nodes` and `--nproc-per-node` of a run."""
    parser.add_argument("--nodes", type=positive, help="nodes that take part")
    parser.add_argument("--nproc-per-node", type=positive, help="workers on each node")


def add_conduct(parser: argparse.ArgumentParser) -> None:
    """`--cold` and `--timeout`."""
    parser.add_argument("--cold", action="store_true", help="start fresh interpreters, do not fork the warm agents")
    parser.add_argument(
        "--timeout",
        dest="timeout_s",
        type=duration,
        metavar="TIME",
        help="call the run hung after this long, e.g. 90s; not counted while ranks are held",
    )


def add_update(parser: argparse.ArgumentParser) -> None:
    """`--update` and `--no-update`."""
    parser.add_argument(
        "--update",
        action=argparse.BooleanOptionalAction,
        help="write the snapshots of `expect: calls: snapshot` anew; --no-update: not even those that are missing "
        "(default: those that are missing, and none where CI is set)",
    )


def add_trace_values(container: argparse._ActionsContainer) -> None:
    """`--trace-values`."""
    container.add_argument(
        "--trace-values",
        type=trace_values,
        metavar="N",
        help="record up to N elements on each side of a call, of larger ones a summary; 0: neither (default: 256)",
    )


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Everything that makes the shape of a cluster, except its size."""
    parser.add_argument("--image", help="image of the nodes; anything with Python >= 3.9 and torch")
    add_requirements(parser)
    parser.add_argument(
        "--data",
        type=data,
        action=OncePerName,
        default={},
        metavar="NAME=FOLDER",
        help="a folder of this machine that ranks read as $LAB_DATA/NAME",
    )
    parser.add_argument("--cpus", type=positive_float, help="CPU cores a node may use")
    parser.add_argument(
        "--memory",
        dest="memory_bytes",
        type=size,
        metavar="SIZE",
        help="memory a node may use, e.g. 1GiB (default on Docker: its part of 80%% of the machine's)",
    )
    parser.add_argument(
        "--max-processes",
        dest="processes",
        type=positive,
        metavar="N",
        help="processes and threads a node may have (default on Docker: 512, and 256 for each core of the machine)",
    )
    parser.add_argument(
        "--disk",
        dest="disk_bytes",
        type=size,
        metavar="SIZE",
        help="what a run may write on a node (default on Docker: its part of half of what is free; 256MiB if strict)",
    )
    parser.add_argument("--gpus", type=positive, help="GPUs of each node")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="for scripts that nobody trusts: no way out of the cluster, read-only nodes, no volumes, tight limits",
    )
    parser.add_argument(
        "--volume",
        dest="volumes",
        type=volume,
        action="append",
        default=[],
        metavar="HOST:NODE[:ro]",
        help="a host folder for every node",
    )
    parser.add_argument(
        "--env", type=variable, action="append", default=[], metavar="NAME=VALUE", help="environment of every worker"
    )
    parser.add_argument(
        "--hosts",
        type=hosts,
        default=(),
        metavar="A,B",
        help="hosts that nodes are spread over (swarm, slurm; default: all that there are)",
    )
    parser.add_argument(
        "--allocation",
        type=scheduled,
        action=OncePerName,
        default={},
        metavar="NAME=VALUE",
        help="an option of the scheduler by its long name, e.g. partition=gpu, time=30:00, account=me (slurm)",
    )


def add_requirements(parser: argparse.ArgumentParser) -> None:
    """`--requirements`."""
    parser.add_argument(
        "--requirements",
        type=requirements,
        default=(),
        metavar="FILE",
        help="packages for the nodes, as in pip's requirements.txt, besides those that they have",
    )


class OncePerName(argparse.Action):
    """Collects pairs of a name and a value; each name may be given once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take one."""
        name, value = values
        known = getattr(namespace, self.dest)
        if name in known:
            raise argparse.ArgumentError(self, f"{name} is given twice: {known[name]} and {value}")
        setattr(namespace, self.dest, {**known, name: value})


def _type(convert: Callable[[str], T]) -> Callable[[str], T]:
    """The conversion as argparse wants it: an error is a sentence."""

    def converted(word: str) -> T:
        try:
            return convert(word)
        except (LabError, ValueError) as error:
            raise argparse.ArgumentTypeError(getattr(error, "message", str(error))) from None

    return converted


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise ValueError(f"found {word!r}; allowed: a whole number, 1 or more")
    return int(word)


def _whole(word: str) -> int:
    if not (word.isdecimal() and word.isascii()) or len(word) > 9:
        raise ValueError(f"found {word!r}; allowed: a whole number, 0 or more")
    return int(word)


def _trace_values(word: str) -> int:
    if not (word.isdecimal() and word.isascii()) or len(word) > 9 or int(word) > MAX_TRACE_VALUES:
        raise ValueError(f"found {word!r}; allowed: a whole number from 0 to {MAX_TRACE_VALUES}")
    return int(word)


def _positive_float(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise ValueError(f"found {word!r}; allowed: a number above 0")
    return number


def _volume(word: str) -> Volume:
    from lab.spec.volumes import Volume  # few commands mount any

    source, colon, rest = word.partition(":")
    target, _, mode = rest.partition(":")
    path = Path(source).expanduser().resolve()
    if not colon or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"found {word!r}; allowed: HOST:NODE or HOST:NODE:ro, NODE an absolute path")
    if not path.exists():
        raise ValueError(f"there is no {path}")
    return Volume(source=path, target=target, read_only=mode == "ro")


def _variable(word: str) -> tuple[str, str]:
    from lab.spec.environment import name_problem

    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE")
    wrong = name_problem(name)
    if wrong:
        raise ValueError(wrong)
    return name, value


def _hosts(word: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in word.split(","))
    if "" in names or len({*names}) < len(names):
        raise ValueError(f"found {word!r}; allowed: names of hosts with commas between them, each once")
    return names


def _scheduled(word: str) -> tuple[str, str]:
    name, equals, value = word.removeprefix("--").partition("=")
    if not equals or not name.replace("-", "").isalnum():
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE, NAME the long name of an option of the scheduler")
    return name, value


def _data(word: str) -> tuple[str, Path]:
    from lab.spec.data import folder_problem, name_problem

    name, equals, folder = word.partition("=")
    if not equals or not folder:
        raise ValueError(f"found {word!r}; allowed: NAME=FOLDER")
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    wrong = name_problem(name) or folder_problem(path)
    if wrong:
        raise ValueError(wrong)
    return name, path


def _requirements(word: str) -> tuple[str, ...]:
    from lab.spec.requirements import read_file

    return read_file(Path(word))


positive = _type(_positive)
whole = _type(_whole)
trace_values = _type(_trace_values)
positive_float = _type(_positive_float)
duration = _type(parse_duration)
age = _type(parse_age)
size = _type(parse_size)
volume = _type(_volume)
variable = _type(_variable)
hosts = _type(_hosts)
scheduled = _type(_scheduled)
data = _type(_data)
requirements = _type(_requirements)


def shape_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_shape` took, as `Cluster` wants it."""
    names = ("image", "requirements", "data", "cpus", "memory_bytes", "processes", "disk_bytes", "gpus", "strict")
    said = {name: getattr(arguments, name) for name in (*names, "hosts", "allocation")}
    return {**said, "volumes": tuple(arguments.volumes), "env": dict(arguments.env)}


def fields_said(kind: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the arguments say of the fields of a dataclass, as its constructor takes it."""
    return {field.name: getattr(arguments, field.name) for field in fields(kind) if hasattr(arguments, field.name)}
