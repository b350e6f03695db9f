"""Share code between verbs: arguments and their values, the records and scenarios they name, answers, and progress."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lab.cli.call import Parser
from lab.engine import select
from lab.engine.select import AUTO
from lab.errors import LabError, UsageError
from lab.record.layout import RUNS
from lab.report.sanitize import sanitize_text
from lab.report.style import Style, style_for
from lab.spec import launching
from lab.spec.keys import Volume, checked_folders, parse_volume, variable_problem
from lab.spec.kinds import parse_age, parse_duration, parse_size
from lab.spec.scenario import MAX_TRACE_VALUES, Scenario, check_timeout
from lab.words import clip_end

if TYPE_CHECKING:
    from lab.record.read import Record
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


def convert_word(convert: Callable[[str], T]) -> Callable[[str], T]:
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

    return convert_word(convert)


def number_argument(allowed: str, fits: Callable[[float], bool], percent: bool = False) -> Callable[[str], float]:
    """Return a parser of numbers that fit.

    Args:
        allowed: the numbers that fit, for a message.
        fits: whether one does.
        percent: whether `10%` is 0.1.
    """

    def convert(word: str) -> float:
        is_part = percent and word.endswith("%")
        try:
            number = float(word.removesuffix("%") if is_part else word) / (100 if is_part else 1)
        except ValueError:
            number = math.nan
        if not fits(number):
            raise ValueError(f"found {word!r}; allowed: {allowed}")
        return number

    return convert_word(convert)


positive_float = number_argument("a number above 0", lambda number: 0 < number < 1e6)


@convert_word
def volume_argument(word: str) -> Volume:
    """Parse a host folder and its path in nodes: `HOST:NODE[:ro]`."""
    try:
        return parse_volume(word, Path.cwd())
    except UsageError as error:
        raise ValueError(f"found {word!r}{error.message}; allowed: HOST:NODE or HOST:NODE:ro") from None


@convert_word
def variable_argument(word: str) -> tuple[str, str]:
    """Parse an environment variable: `NAME=VALUE`."""
    name, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"found {word!r}; allowed: NAME=VALUE")
    if problem := variable_problem(name):
        raise ValueError(problem)
    return name, value


@convert_word
def host_list(word: str) -> tuple[str, ...]:
    """Parse names of hosts that are separated by commas."""
    names = tuple(name.strip() for name in word.split(","))
    if "" in names or len({*names}) < len(names):
        raise ValueError(f"found {word!r}; allowed: distinct host names separated by commas, such as host1,host2")
    return names


@convert_word
def scheduler_option(word: str) -> tuple[str, str]:
    """Parse an option of a scheduler: `partition=gpu`."""
    name, equals, value = word.removeprefix("--").partition("=")
    if not equals or not name.replace("-", "").isalnum():
        raise ValueError(f"found {word!r}; allowed: a long option and its value, such as partition=gpu")
    return name, value


@convert_word
def data_folder(word: str) -> tuple[str, Path]:
    """Parse a named folder of this machine: `NAME=FOLDER`."""
    name, equals, folder = word.partition("=")
    if not equals or not folder:
        raise ValueError(f"found {word!r}; allowed: NAME=FOLDER")
    return next(iter(checked_folders({name: folder}).items()))


@convert_word
def requirements_file(word: str) -> tuple[str, ...]:
    """Read the packages that a file names."""
    from lab.spec.load import read_requirements

    return read_requirements("requirements_in", Path(word))


positive = _whole_number(", 1 or more", 1)
whole = _whole_number(", 0 or more", 0)
trace_values = _whole_number(f" from 0 to {MAX_TRACE_VALUES}", 0, MAX_TRACE_VALUES)
duration = convert_word(parse_duration)
stall_limit = convert_word(lambda word: 0.0 if word == "0" else parse_duration(word))
time_limit = convert_word(lambda word: check_timeout(parse_duration(word)))
age = convert_word(parse_age)
size = convert_word(parse_size)


HELP = {
    "--all-files": "ship files that .gitignore names, too",
    "--allocation": "pass an option to the scheduler, such as partition=gpu (slurm) or namespace=a (kubernetes)",
    "--allow-volumes": "let scenarios mount folders of this machine that are outside the scenario's folder",
    "--attempt": "attempt of the run, from 0, if its launcher restarted the workers (default: the last)",
    "--backend": "use this backend, whatever the script names: gloo, mpi, or nccl",
    "--cold": "start a new interpreter for each rank instead of forking the warm agents",
    "--cpus": "limit the CPU cores of each node",
    "--data": "let ranks read a folder of this machine as $LAB_DATA/NAME",
    "--disk": "limit what a run writes on a node (default on Docker: the node's share of half of the free space; with "
    "--strict: 256MiB)",
    "--engine": "engine that provides the nodes (default: auto)",
    "--env": "set an environment variable for every rank",
    "--folder": "ship this folder, such as the root of a repository, and start the script in it",
    "--fresh": "empty the shared folder of the nodes before the run",
    "--gpus": "GPUs of each node",
    "--hosts": "spread nodes over these hosts (slurm, kubernetes; default: all)",
    "--image": "image of the nodes: any with Python 3.9 or later and torch",
    "--interactive": "connect this rank to the terminal, as for a debugger; stops time limits, Ctrl-] ends the run",
    "--json": "print JSON",
    "--keep": "keep the cluster that is created for the run",
    "--launcher": "program that starts the ranks (default: the scenario's, or lab)",
    "--max-output": "keep at most this much of each rank's output (default: 256MiB; with --strict: 16MiB)",
    "--max-processes": "limit the processes and threads of a node (default on Docker: 512, and 256 for each CPU core "
    "of the machine; with --strict: 256)",
    "--memory": "limit the memory of each node, such as 1GiB (default on Docker: the node's share of 80%% of the "
    "machine's)",
    "--name": "name of the cluster (default: the cluster of the current folder)",
    "--no-trace": "do not record collectives and messages",
    "--nodes": "number of nodes",
    "--nproc-per-node": "number of ranks on each node",
    "--one-user": "run the ranks of a node as one user, as torchrun does: ranks can open each other's private files",
    "--outputs": "write the files of the run to this folder (default: to its record)",
    "--pull": "pull images that scenarios name and the engine does not have",
    "--quiet": "print only errors",
    "--raw": "print the output of ranks unchanged, with its terminal control sequences",
    "--requirements": "install the packages of a requirements.txt on the nodes",
    "--rewrite-address": "use the run's own store, whatever address the script names for init_process_group",
    "--runs": f"folder of all runs (default: {RUNS})",
    "--split-gpus": "show each rank only its share of the GPUs of its node, as cuda:0",
    "--stall": "end the run once its ranks have waited for each other this long without progress (default: never)",
    "--stdin": "connect rank 0 to standard input",
    "--strict": "for untrusted scripts: no network outside the cluster, read-only nodes, no volumes, low limits",
    "--svg": "write the picture to a file",
    "--timeout": "time limit of the run, such as 90s (default: the scenario's, or 10 min for a script); time in which "
    "ranks are held or a launcher starts does not count",
    "--trace-values": "record up to N elements before and after each call, and a summary of larger tensors; 0 records "
    "neither (default: 256)",
    "--volume": "mount a folder of this machine on every node",
    "--wait": "wait up to this long while the cluster is busy, such as 60s",
}
"""Help texts of the options of runs and clusters, and of others that several verbs share."""
Parser.shared_options = HELP


_LISTED = {"action": "append", "default": []}
_HOW: dict[str, dict[str, Any]] = {
    "--allocation": {"type": scheduler_option, "action": OncePerName, "default": {}, "metavar": "NAME=VALUE"},
    "--attempt": {"type": whole, "metavar": "N"},
    "--backend": {"metavar": "NAME"},
    "--cpus": {"type": positive_float, "metavar": "N"},
    "--data": {"type": data_folder, "action": OncePerName, "default": {}, "metavar": "NAME=FOLDER"},
    "--disk": {"dest": "disk_bytes", "type": size, "metavar": "SIZE"},
    "--engine": {"default": AUTO, "metavar": ""},
    "--env": {"type": variable_argument, **_LISTED, "metavar": "NAME=VALUE"},
    "--gpus": {"type": positive, "metavar": "N"},
    "--hosts": {"type": host_list, "default": (), "metavar": "A,B"},
    "--image": {"metavar": "IMAGE"},
    "--interactive": {"type": whole, "metavar": "RANK"},
    "--launcher": {"metavar": ""},
    "--max-output": {"dest": "output_bytes", "type": size, "metavar": "SIZE"},
    "--max-processes": {"dest": "processes", "type": positive, "metavar": "N"},
    "--memory": {"dest": "memory_bytes", "type": size, "metavar": "SIZE"},
    "--name": {"metavar": "CLUSTER", "complete": "clusters"},
    "--no-trace": {"action": "store_false", "dest": "trace"},
    "--nodes": {"type": positive, "metavar": "N"},
    "--nproc-per-node": {"type": positive, "metavar": "N"},
    "--folder": {"type": Path},
    "--outputs": {"type": Path, "metavar": "DIR"},
    "--requirements": {"type": requirements_file, "default": (), "metavar": "FILE"},
    "--runs": {"type": Path, "default": RUNS, "metavar": "FOLDER"},
    "--stall": {"dest": "stall_s", "type": stall_limit, "metavar": "TIME"},
    "--svg": {"type": Path, "metavar": "FILE"},
    "--timeout": {"dest": "timeout_s", "type": time_limit, "metavar": "TIME"},
    "--trace-values": {"type": trace_values, "metavar": "N"},
    "--volume": {"dest": "volumes", "type": volume_argument, **_LISTED, "metavar": "HOST:NODE[:ro]"},
    "--wait": {"dest": "wait_s", "type": duration, "default": 0.0, "metavar": "TIME"},
}
"""Keyword arguments of `add_argument` for these options; other options of `HELP` are flags."""
SHAPE = ("--image", "--requirements", "--data", "--cpus", "--memory", "--max-processes", "--disk", "--gpus", "--strict",
         "--volume", "--env", "--hosts", "--allocation")  # fmt: skip
"""Options that define the shape of a cluster, except its size."""


_GROUPS = {
    "ranks": ("--nodes", "--nproc-per-node", "--launcher", "--backend", "--timeout", "--interactive", "--stdin",
              "--env", "--cold", "--one-user", "--split-gpus", "--fresh",
              "--rewrite-address", "--max-output", "--stall"),
    "cluster": ("--name", "--engine", "--keep", "--wait", *SHAPE, "--pull", "--allow-volumes"),
    "record": ("--folder", "--all-files", "--outputs", "--runs", "--no-trace", "--trace-values"),
    "output": ("--json", "--raw", "--quiet"),
}  # fmt: skip
"""Title of a group in `--help` -> its options; the first group that names an option has it."""
_EVERYDAY = ("--nodes", "--nproc-per-node", "--launcher", "--timeout", "--interactive", "--name", "--engine", "--image",
             "--requirements", "--json", "--quiet")  # fmt: skip
"""Options of these groups that `--help` shows; `--help-all` shows the others too."""
_CHOICES = {"--engine": select.CHOICES, "--launcher": launching.CHOICES}


def add_options(
    container: argparse._ActionsContainer, *names: str, complete: str = "", rare: bool = False, **how: Any
) -> None:
    """Add arguments, with their help from `HELP`; skip options that the container already has.

    Args:
        container: a parser or a group. A parser puts each option into its group.
        names: options from `HELP`, or one other argument.
        complete: kind of names for shell completion, see `lab.features.help.verb_completion`.
        rare: only `--help-all` shows them.
        how: keyword arguments of `add_argument`; they override the known ones.
    """
    for name in names:
        if name in container._option_string_actions:  # noqa: SLF001
            continue
        title = next((title for title, group in _GROUPS.items() if name in group), "")
        group = container.group(title) if title and isinstance(container, Parser) else container
        known = {"help": HELP[name], **_HOW.get(name, {"action": "store_true"})} if name in HELP else {}
        kind = known.pop("complete", complete)
        argument = group.add_argument(*((name, "-q") if name == "--quiet" else (name,)), **{**known, **how})
        if kind:
            vars(argument)["complete"] = kind  # `lab completion` converts it for shtab
        vars(argument)["rare"] = rare or bool(title and name not in _EVERYDAY)
        if name in _CHOICES:
            argument.choices, argument.metavar = _CHOICES[name], None  # set later, because argparse would list them


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


def named_scenarios(
    paths: Sequence[Path], args: Sequence[str], env: Mapping[str, str], load: Callable[[Path], Scenario] | None = None
) -> list[Scenario]:
    """Load each scenario of these files, folders, and lessons; append `args` and `env` to its own.

    Raises:
        ScenarioError: one is not valid, and `load` does not handle it.
    """
    from lab.spec.load import find_scenarios, open_scenario

    scenarios = map(load or open_scenario, find_scenarios(paths))
    return [replace(one, args=(*one.args, *args), env={**one.env, **env}) for one in scenarios]


def print_answer(arguments: argparse.Namespace, data: Any, text: Callable[[Style], str]) -> int:
    """Print the data, or what it returns, as JSON with `--json`, else the text; return the exit code 0."""
    if arguments.json:
        print(json.dumps(data() if callable(data) else data))
    else:
        print_sanitized(text(style_for(sys.stdout)))
    return 0


def print_sanitized(text: str) -> None:
    """Print text, parts of which can come from scripts."""
    print(sanitize_text(text), flush=True)


def write_text(path: Path, text: str, *, makes_folder: bool = False) -> None:
    """Write text to a file that the user named, if asked in a new folder.

    Raises:
        LabError: it cannot be written.
    """
    with LabError.on_os_error(f"cannot write {path}", "choose a writable folder"):
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")


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
