"""`lab fault`, `lab stop`, `lab start`, and the fault options of `lab run`.

Examples:
  lab fault kill node2                a power cut, also during a run
  lab fault pause node1 --for 3s      for three seconds
  lab fault list                      the faults in force
  lab fault heal                      undo all faults
  lab fault kinds                     the kinds of faults, and the engines that support them

`lab fault heal` and `lab up` undo faults. So does the next run on that cluster, before and after it. To keep
faults, use `lab run --keep-faults`. In a scenario, the key `faults:` has faults and their triggers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.call import Command, Parser, help_in
from lab.cluster import Cluster
from lab.engine.select import engine_names
from lab.errors import UsageError
from lab.features.faults.fault import named_faults
from lab.features.faults.injection import fault_of
from lab.features.faults.kinds import FaultKind, fault_kinds
from lab.report.cluster_view import cluster_json
from lab.report.style import Style, table_text
from lab.words import format_count, format_duration, group_pairs, join_words


def _add_fault_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = help_in(__doc__)
    shared.add_options(parser, "what", help="a kind of fault; or list, heal, or kinds", complete="faults")
    shared.add_options(parser, "words", nargs="*", metavar="word", help="target and values", complete="nodes")
    about = "undo the fault after this time, such as 3s"
    parser.add_argument("--for", dest="for_s", type=shared.duration, metavar="TIME", help=about)
    shared.add_options(parser, "--name", "--engine", "--json")


def _fault(arguments: argparse.Namespace) -> int:
    """Inject a fault, or list, heal, or explain faults."""
    if arguments.what not in _SHOWN:
        return _break(arguments)
    if arguments.words or arguments.for_s is not None:
        raise UsageError(f"`lab fault {arguments.what}` takes no arguments", "see `lab fault --help`")
    return _SHOWN[arguments.what](arguments)


def list_fault_words() -> set[str]:
    """Return the words that may follow `lab fault`, for shell completion."""
    return {*_SHOWN, *(name for name, kind in fault_kinds().items() if not kind.by_worker)}


def _break(arguments: argparse.Namespace) -> int:
    wanted = fault_of(arguments.what, *arguments.words)  # before asking any engine
    cluster = _cluster(arguments)
    begun = time.monotonic()
    fault = cluster.fault(wanted, for_s=arguments.for_s)
    took = format_duration(time.monotonic() - begun)
    sentence = f"cluster {cluster.name}: injected {wanted} ({took}); `lab fault heal` undoes it"
    if arguments.for_s is not None:
        sys.stderr.write(f"cluster {cluster.name}: injected {wanted} for {format_duration(arguments.for_s)}\n")
        with fault:
            time.sleep(arguments.for_s)
        sentence = f"cluster {cluster.name}: {wanted} is healed"
    healed = {"healed": arguments.for_s is not None}
    data = {"fault": str(wanted), "found": dict(fault.measured), "cluster": cluster.name, **healed}
    return shared.print_answer(arguments, data, lambda _: sentence)


def _list(arguments: argparse.Namespace) -> int:
    standing, now = _cluster(arguments).faults(), time.time()

    def text(style: Style) -> str:
        rows = [
            [it.description, it.state, it.by, f"{format_duration(max(0.0, now - it.since))} ago"] for it in standing
        ]
        return table_text(["fault", "state", "injected by", "since"], rows, style) if rows else "no faults"

    return shared.print_answer(arguments, lambda: [one.to_json() for one in standing], text)


def _heal(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments, announced=False)
    healed = cluster.heal()
    if left := join_words(one.description for one in cluster.faults()):
        raise UsageError(f"{left} could not be undone", "`lab down` removes the cluster and its faults")
    names = join_words(one.description for one in reversed(healed))
    sentence = f"healed {format_count(len(healed), 'fault')}: {names}" if healed else "no faults"
    data = [one.to_json() for one in healed]
    return shared.print_answer(arguments, data, lambda _: f"cluster {cluster.name}: {sentence}")


def _cluster(arguments: argparse.Namespace, *, announced: bool = True) -> Cluster:
    def announce(text: str) -> None:
        if announced or text.startswith("warning"):
            sys.stderr.write(f"{text}\n")

    return Cluster(name=arguments.name, engine=arguments.engine, announce=announce)


def _kinds(arguments: argparse.Namespace) -> int:
    """List every kind, and which engines support it, or why not."""
    kinds, engines = fault_kinds(), engine_names()
    data = []
    for name, kind in kinds.items():
        facts = {"kind": name, "does": kind.does, "allowed": kind.value().allowed, "example": kind.example}
        data.append({**facts, "by_rank": kind.by_worker, "cannot": unsupported_engines(kind)})

    def text(style: Style) -> str:
        rows = [[name, *(engine_cell(kind, engine) for engine in engines), kind.does] for name, kind in kinds.items()]
        why = ((reason, name) for name, kind in kinds.items() for reason in unsupported_engines(kind).items())
        reasons = group_pairs(why)
        lines = [f"not on {engine}: {join_words(names)}, which {why}" for (engine, why), names in reasons.items()]
        return "\n".join([table_text(["fault", *engines, "effect"], rows, style), *lines])

    return shared.print_answer(arguments, data, text)


def unsupported_engines(kind: type[FaultKind]) -> dict[str, str]:
    """Return the engines that do not support a kind, and why not."""
    return {engine: why for engine in engine_names() if (why := kind.why_not(engine))}


def engine_cell(kind: type[FaultKind], engine: str) -> str:
    """Return whether an engine supports a kind, and whether only in a run."""
    return "no" if kind.why_not(engine) else "in runs" if kind.by_worker else "yes"


_NODES = "node0, node1, ..., or a number"
_SHOWN = {"list": _list, "heal": _heal, "kinds": _kinds}


def _add_stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "A run in progress loses them. They stay stopped until `lab start` or `lab up`."
    shared.add_options(parser, "node", nargs="+", help=_NODES, complete="nodes")
    shared.add_options(parser, "--name", "--engine", "--json")


def _stop(arguments: argparse.Namespace) -> int:
    """Stop nodes, and print their names."""
    info = Cluster(name=arguments.name, engine=arguments.engine).stop(*arguments.node)
    names = [node.name for node in info.named(*arguments.node)]
    sentence = f"cluster {info.name}: {join_words(names)} {'is' if len(names) == 1 else 'are'} stopped"
    return shared.print_answer(arguments, lambda: cluster_json(info), lambda _: sentence)


def _add_start_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_options(parser, "node", nargs="*", help=f"{_NODES} (default: all stopped nodes)", complete="nodes")
    shared.add_options(parser, "--name", "--engine", "--json", "--quiet")


def _start(arguments: argparse.Namespace) -> int:
    """Start nodes, and print their names."""
    began = time.monotonic()
    with shared.Progress(quiet=arguments.quiet) as progress:
        cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=progress.announce)
        info = cluster.start(*arguments.node)
    if arguments.quiet and not arguments.json:
        return 0
    names = [node.name for node in (info.named(*arguments.node) if arguments.node else info.nodes)]
    took = format_duration(time.monotonic() - began)
    sentence = f"cluster {info.name}: {join_words(names)} {'runs' if len(names) == 1 else 'run'} ({took})"
    return shared.print_answer(arguments, lambda: cluster_json(info), lambda _: sentence)


def _add_run_options(parser: Parser) -> None:
    group = parser.group("faults")
    about = "inject a fault, such as 'kill: node2, when: {at: 2s}', or the faults of a YAML file"
    group.add_argument("--fault", dest="faults", action="append", default=[], metavar="FAULT", help=about)
    about = "give links the delay and rate of a network profile, such as lan-1g or wan-40ms (on Docker)"
    shared.add_options(group, "--network", metavar="PROFILE", help=about, rare=True)
    about = "do not undo the faults of `lab fault` before and after the run"
    shared.add_options(group, "--keep-faults", action="store_true", help=about, rare=True)


def _run_with_faults(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Parse the faults of the command line, and run.

    Raises:
        ScenarioError: a fault is invalid; a line for each problem.
    """
    arguments.faults = named_faults(arguments.faults)
    return verb(arguments)


FAULT = Command(_add_fault_arguments, _fault)
STOP = Command(_add_stop_arguments, _stop)
START = Command(_add_start_arguments, _start)
RUN_OPTIONS = Command(_add_run_options, _run_with_faults)
