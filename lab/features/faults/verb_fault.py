"""`lab fault`: break something in a cluster on purpose; list and heal what is broken."""

from __future__ import annotations

import argparse
import sys
import time

from lab.cli import argument_types as types
from lab.cli import arguments as shared
from lab.cli.answer import answer
from lab.cluster import Cluster
from lab.errors import UsageError
from lab.features.faults.by_hand import fault_of
from lab.features.faults.view import kinds_json, kinds_text, standing_text
from lab.words import format_duration, listing, plural

_HOWTO = """examples:
  lab fault kill node2                a power cut, also while a run goes on
  lab fault pause node1 --for 3s      for three seconds
  lab fault list                      what is broken now
  lab fault heal                      undo all of it
  lab fault kinds                     what can be broken, and on which engine

What is broken stands in a journal: it is undone by `lab fault heal`, by `lab up`, and by the next run on that cluster,
before and after it (`lab run --keep-faults` leaves it). In a scenario, `faults:` says what breaks when."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    what = parser.add_argument("what", help="a kind of fault; or list, heal or kinds")
    shared.completes(what, "faults")
    words = parser.add_argument("words", nargs="*", metavar="word", help="what it is done to, and how")
    shared.completes(words, "nodes")
    parser.add_argument(
        "--for", dest="for_s", type=types.duration, metavar="TIME", help="wait so long, then undo it, e.g. 3s"
    )
    shared.add_cluster(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it, or tell."""
    if arguments.what not in _TELLS:
        return _break(arguments)
    if arguments.words or arguments.for_s is not None:
        raise UsageError(f"`lab fault {arguments.what}` takes nothing else", "see `lab fault --help`")
    return _TELLS[arguments.what](arguments)


def names() -> set[str]:
    """What may follow `lab fault`, for shells that complete a word."""
    from lab.features.faults.kind import fault_kinds

    return {*_TELLS, *(name for name, kind in fault_kinds().items() if not kind.by_worker)}


def _break(arguments: argparse.Namespace) -> int:
    wanted = fault_of(arguments.what, *arguments.words)  # before any engine is asked
    cluster = _cluster(arguments)
    begun = time.monotonic()
    fault = cluster.fault(wanted, for_s=arguments.for_s)
    took = format_duration(time.monotonic() - begun)
    told = {"fault": str(wanted), "found": dict(fault.found), "cluster": cluster.name, "healed": False}
    if arguments.for_s is None:
        sentence = f"cluster {cluster.name}: {wanted} is in force ({took}); `lab fault heal` undoes it"
        return answer(arguments, lambda: told, lambda _: sentence)
    sys.stderr.write(f"cluster {cluster.name}: {wanted} is in force for {format_duration(arguments.for_s)}\n")
    with fault:
        time.sleep(arguments.for_s)
    return answer(arguments, lambda: {**told, "healed": True}, lambda _: f"cluster {cluster.name}: {wanted} is healed")


def _list(arguments: argparse.Namespace) -> int:
    standing = _cluster(arguments).faults()
    data = [one.to_json() for one in standing]
    return answer(arguments, lambda: data, lambda style: standing_text(standing, time.time(), style))


def _heal(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments, announced=False)
    healed = cluster.heal()
    left = cluster.faults()
    if left:
        raise UsageError(
            f"{listing(one.said for one in left)} could not be undone", "`lab down` removes the cluster with all of it"
        )
    told = listing(one.said for one in reversed(healed))
    sentence = f"healed {plural(len(healed), 'fault')}: {told}" if healed else "nothing is broken"
    return answer(arguments, lambda: [one.to_json() for one in healed], lambda _: f"cluster {cluster.name}: {sentence}")


def _kinds(arguments: argparse.Namespace) -> int:
    return answer(arguments, kinds_json, kinds_text)


def _cluster(arguments: argparse.Namespace, *, announced: bool = True) -> Cluster:
    def announce(text: str) -> None:
        if announced or text.startswith("warning"):
            sys.stderr.write(f"{text}\n")

    return Cluster(name=arguments.name, engine=arguments.engine, announce=announce)


_TELLS = {"list": _list, "heal": _heal, "kinds": _kinds}
