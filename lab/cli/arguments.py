"""Share code between verbs: arguments and their values, the records and scenarios they name, answers, and progress."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lab.engine.select import AUTO, CHOICES
from lab.errors import LabError, UsageError
from lab.record.layout import RUNS
from lab.report.sanitize import sanitize_text
from lab.report.style import Style, style_for
from lab.spec.kinds import parse_age, parse_duration, parse_size
from lab.spec.scenario import MAX_TRACE_VALUES, Scenario
from lab.words import clip_end

if TYPE_CHECKING:
    from lab.record.read import Record
    from lab.spec.keys import Volume

T = TypeVar("T")


class OncePerName(argparse.Action):
    """Collect pairs of a name and a value; refuse a name that is given twice."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Add one."""
        name, value = values
        known = getattr(namespace, self.dest)
        if name in known:
            raise argparse.ArgumentError(self, f"{name} is given twice: {known[name]} and {value}")
        setattr(namespace, self.dest, {**known, name: value})


def _converter(convert: Callable[[str], T]) -> Callable[[str], T]:
    """Turn a conversion into what argparse expects: its error becomes a sentence."""

    def converted(word: str) -> T:
        try:
            return convert(word)
        except (LabError, ValueError) as error:
            raise argparse.ArgumentTypeError(getattr(error, "message", str(error))) from None

    return converted


def _whole_number(allowed: str, low: int, high: int = 10**9 - 1) -> Callable[[str], int]:
    def convert(word: str) -> int:
        if not (word.isdecimal() and word.isascii()) or len(word) > 9 or not low <= int(word) <= high:
            raise ValueError(f"found {word!r}; allowed: a whole number{allowed}")
        return int(word)

    return _converter(convert)


@_converter
def positive_float(word: str) -> float:
    """Parse a number above 0."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise ValueError(f"found {word!r}; allowed: a number above 0")
    return number


@_converter
def volume_argument(word: str) -> Volume:
    """Parse a host folder and its path in nodes: `HOST:NODE[:ro]`."""
    from lab.spec.keys import parse_volume  # few commands mount volumes

    try:
        return parse_volume(word, Path.cwd())
    except UsageError as error:
        raise ValueError(f"found {word!r}{error.message}; allowed: HOST:NODE or HOST:NODE:ro") from None


@_converter
def variable_argument(word: str) -> tuple[str, str]:
    """Parse an environment variable: `NAME=VALUE`."""
    from lab.spec.keys import variable_problem

    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE")
    if problem := variable_problem(name):
        raise ValueError(problem)
    return name, value


@_converter
def host_list(word: str) -> tuple[str, ...]:
    """Parse names of hosts that are separated by commas."""
    names = tuple(name.strip() for name in word.split(","))
    if "" in names or len({*names}) < len(names):
        raise ValueError(f"found {word!r}; allowed: names of hosts with commas between them, each once")
    return names


@_converter
def scheduler_option(word: str) -> tuple[str, str]:
    """Parse an option of a scheduler: `partition=gpu`."""
    name, equals, value = word.removeprefix("--").partition("=")
    if not equals or not name.replace("-", "").isalnum():
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE, NAME the long name of an option of the scheduler")
    return name, value


@_converter
def data_folder(word: str) -> tuple[str, Path]:
    """Parse a named folder of this machine: `NAME=FOLDER`."""
    from lab.spec.keys import checked_folders

    name, equals, folder = word.partition("=")
    if not equals or not folder:
        raise ValueError(f"found {word!r}; allowed: NAME=FOLDER")
    return next(iter(checked_folders({name: folder}).items()))


@_converter
def requirements_file(word: str) -> tuple[str, ...]:
    """Read the packages that a file names."""
    from lab.spec.load import read_requirements

    return read_requirements("requirements_in", Path(word))


positive = _whole_number(", 1 or more", 1)
whole = _whole_number(", 0 or more", 0)
trace_values = _whole_number(f" from 0 to {MAX_TRACE_VALUES}", 0, MAX_TRACE_VALUES)
duration = _converter(parse_duration)
age = _converter(parse_age)
size = _converter(parse_size)


HELP = {
    "--allocation": "an option of the scheduler by its long name, such as partition=gpu or time=30:00 (slurm)",
    "--allow-volumes": "let scenarios mount folders of this machine outside of their own",
    "--attempt": "the attempt, if the launcher restarted the workers of the run; the first is 0 (default: the last)",
    "--backend": "backend of the process groups, whatever the script names: gloo, mpi, or nccl",
    "--cold": "start new interpreters instead of forks of the warm agents",
    "--cpus": "CPU cores a node may use",
    "--data": "a folder of this machine that ranks read as $LAB_DATA/NAME",
    "--disk": "disk space of a run on a node (default on Docker: its part of half of the free space; 256MiB if strict)",
    "--engine": "what provides nodes (default: auto)",
    "--env": "environment of every worker",
    "--fresh": "empty the folder that all nodes share before the run",
    "--gpus": "GPUs of each node",
    "--hosts": "hosts of the nodes (slurm; default: all)",
    "--image": "image of the nodes: any with Python >= 3.9 and torch",
    "--interactive": "give this rank the terminal, as for a debugger or a prompt; time-outs stop, Ctrl-] ends the run",
    "--json": "print JSON",
    "--keep": "if a cluster is made for the run, keep it",
    "--launcher": "what starts the workers (default: the scenario's, else lab)",
    "--max-output": "limit of a rank's output, the rest is dropped (default: 256MiB; 16MiB on a strict cluster)",
    "--max-processes": "processes and threads a node may have (default on Docker: 512, and 256 for each core of the "
    "machine; 256 if strict)",
    "--memory": "memory a node may use, such as 1GiB (default on Docker: its part of 80%% of the machine's)",
    "--name": "cluster; default: the one of the current folder",
    "--no-trace": "do not record the collectives",
    "--nodes": "nodes that take part",
    "--nproc-per-node": "workers on each node",
    "--one-user": "let the ranks of a node be one user, as under torchrun: they may open each other's private files",
    "--outputs": "put the files that the run makes there (default: into its record)",
    "--pull": "pull images that scenarios name and the engine lacks",
    "--quiet": "print nothing but errors",
    "--raw": "print the output of ranks unchanged, with its control characters",
    "--requirements": "more packages for the nodes, as in pip's requirements.txt",
    "--runs": f"folder of all runs (default: {RUNS})",
    "--stdin": "pass standard input to rank 0",
    "--strict": "for untrusted scripts: no network outside the cluster, read-only nodes, no volumes, tight limits",
    "--svg": "with an option that draws a picture: write it to a file instead",
    "--timeout": "call the run hung after this time, such as 90s; does not count while the lab holds ranks, nor (for a "
    "minute at most) until a launcher has started a rank",
    "--trace-values": "record up to N elements of each side of a call, else a summary; 0: neither (default: 256)",
    "--volume": "a host folder for every node",
    "--wait": "wait this long for a busy cluster, such as 60s",
}
"""Help texts of the options of runs and clusters, and of others that several verbs share."""


_HOW: dict[str, dict[str, Any]] = {
    "--allocation": {"type": scheduler_option, "action": OncePerName, "default": {}, "metavar": "NAME=VALUE"},
    "--attempt": {"type": whole, "metavar": "N"},
    "--backend": {"metavar": "NAME"},
    "--cpus": {"type": positive_float},
    "--data": {"type": data_folder, "action": OncePerName, "default": {}, "metavar": "NAME=FOLDER"},
    "--disk": {"dest": "disk_bytes", "type": size, "metavar": "SIZE"},
    "--engine": {"default": AUTO, "metavar": ""},
    "--env": {"type": variable_argument, "action": "append", "default": [], "metavar": "NAME=VALUE"},
    "--gpus": {"type": positive},
    "--hosts": {"type": host_list, "default": (), "metavar": "A,B"},
    "--image": {},
    "--interactive": {"type": whole, "metavar": "RANK"},
    "--launcher": {},
    "--max-output": {"dest": "output_bytes", "type": size, "metavar": "SIZE"},
    "--max-processes": {"dest": "processes", "type": positive, "metavar": "N"},
    "--memory": {"dest": "memory_bytes", "type": size, "metavar": "SIZE"},
    "--name": {"metavar": "CLUSTER", "complete": "clusters"},
    "--no-trace": {"action": "store_false", "dest": "trace"},
    "--nodes": {"type": positive},
    "--nproc-per-node": {"type": positive},
    "--outputs": {"type": Path, "metavar": "DIR"},
    "--requirements": {"type": requirements_file, "default": (), "metavar": "FILE"},
    "--runs": {"type": Path, "default": RUNS, "metavar": "FOLDER"},
    "--svg": {"type": Path, "metavar": "FILE"},
    "--timeout": {"dest": "timeout_s", "type": duration, "metavar": "TIME"},
    "--trace-values": {"type": trace_values, "metavar": "N"},
    "--volume": {
        "dest": "volumes",
        "type": volume_argument,
        "action": "append",
        "default": [],
        "metavar": "HOST:NODE[:ro]",
    },
    "--wait": {"dest": "wait_s", "type": duration, "default": 0.0, "metavar": "TIME"},
}
"""Keyword arguments of `add_argument` for these options; other options of `HELP` are flags."""
SHAPE = ("--image", "--requirements", "--data", "--cpus", "--memory", "--max-processes", "--disk", "--gpus", "--strict",
         "--volume", "--env", "--hosts", "--allocation")  # fmt: skip
"""Options that define the shape of a cluster, except its size."""


def add_options(container: argparse._ActionsContainer, *names: str, complete: str = "", **how: Any) -> None:
    """Add arguments, with their help from `HELP`; skip options that the container already has.

    Args:
        container: a parser or a group.
        names: options from `HELP`, or one other argument.
        complete: kind of names for shell completion, see `lab.features.help.verb_completion`.
        how: keyword arguments of `add_argument`; they override the known ones.
    """
    for name in names:
        if name in container._option_string_actions:  # noqa: SLF001
            continue
        known = {"help": HELP[name], **_HOW.get(name, {"action": "store_true"})} if name in HELP else {}
        kind = known.pop("complete", complete)
        argument = container.add_argument(*((name, "-q") if name == "--quiet" else (name,)), **{**known, **how})
        if kind:
            vars(argument)["complete"] = kind  # `lab completion` converts it for shtab
        if name == "--engine":
            argument.choices, argument.metavar = CHOICES, None  # set later, because argparse would list all engines


def shape_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of `SHAPE` as arguments of `Cluster`."""
    names = ("image", "requirements", "data", "cpus", "memory_bytes", "processes", "disk_bytes", "gpus", "strict")
    values = {name: getattr(arguments, name) for name in (*names, "hosts", "allocation")}
    return {**values, "volumes": tuple(arguments.volumes), "env": dict(arguments.env)}


def field_values(kind: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parsed arguments that are fields of a dataclass, as arguments of its constructor."""
    return {field.name: getattr(arguments, field.name) for field in fields(kind) if hasattr(arguments, field.name)}


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add the name of a run, `--attempt`, `--runs`, and `--json`, for each verb that shows a record."""
    about = "name of a run, or how it begins or ends (default: the latest)"
    add_options(parser, "run", nargs="?", help=about, complete="runs")
    add_options(parser, "--attempt", "--runs", "--json")


def open_record(arguments: argparse.Namespace) -> Record:
    """Open the record that the arguments name.

    Raises:
        RecordError: there is none, or it has no such attempt.
    """
    from lab.record.read import find_record

    return find_record(arguments.run, arguments.runs).attempt(arguments.attempt)


def add_scenarios(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the scenarios that a verb runs, and the arguments after -- for their scripts."""
    parser.usage = f"lab {verb} SCENARIO.yaml | SCRIPT.py | FOLDER | @LESSON ... [options] [-- SCRIPT ARGUMENTS]"
    about = "scenarios (YAML), scripts, folders of scenarios, or lessons as @NAME, such as @scatter"
    add_options(parser, "scenarios", type=Path, nargs="+", help=about, complete="scenarios")
    parser.set_defaults(rest=[])


def named_scenarios(paths: Sequence[Path], args: Sequence[str], env: Mapping[str, str]) -> list[Scenario]:
    """Load each scenario of these files, folders, and lessons; append `args` and `env` to its own.

    Raises:
        ScenarioError: one is not valid.
    """
    from lab.spec.load import find_scenarios, open_scenario

    scenarios = map(open_scenario, find_scenarios(paths))
    return [replace(one, args=(*one.args, *args), env={**one.env, **env}) for one in scenarios]


def print_answer(arguments: argparse.Namespace, data: Callable[[], Any], text: Callable[[Style], str]) -> int:
    """Print the data as JSON with `--json`, else the text; return the exit code 0."""
    if arguments.json:
        print(json.dumps(data()))
    else:
        print_sanitized(text(style_for(sys.stdout)))
    return 0


def print_sanitized(text: str) -> None:
    """Print text, parts of which can come from scripts."""
    print(sanitize_text(text), flush=True)


def write_text(path: Path, text: str) -> None:
    """Write text to a file that the user named.

    Raises:
        LabError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}") from error


_LASTING = ("warning", "using", "removed")
"""Announcements with such a beginning stay on the screen."""


class Progress:
    """Show on standard error what the lab does: the latest line in a terminal's status area, elsewhere a line each."""

    def __init__(self, *, quiet: bool = False) -> None:
        from lab.report.live import Bottom  # few verbs need progress

        self._quiet = quiet
        self._bottom = Bottom(None if quiet else sys.stderr)
        self._last = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bottom.wipe()

    def announce(self, text: str) -> None:
        """Show what begins now, unless it is the same as before."""
        if text == self._last:
            return
        self._last, is_lasting = text, text.startswith(_LASTING)
        if self._bottom.is_terminal and not is_lasting:
            self._bottom.show([clip_end(sanitize_text(text), self._bottom.size.columns)])
        else:
            self.line(style_for(sys.stderr).paint(sanitize_text(text), "yellow" if is_lasting else "dim"))

    def line(self, text: str) -> None:
        """Print a line that stays, with its own colours."""
        self._bottom.wipe()
        if not self._quiet:
            print(sanitize_text(text), file=sys.stderr, flush=True)
