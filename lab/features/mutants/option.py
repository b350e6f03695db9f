"""`lab run --mutant`, and the key `mutant` of scenarios."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from lab.cli import arguments as shared
from lab.cli.call import Command, Parser
from lab.errors import UsageError
from lab.features.mutants.on_node.mutant import ALLOWED, EXAMPLE, OBSERVE, VARIABLE, parse_mutant
from lab.frozen import Frozen
from lab.plan.plan import Part, PlanOptions
from lab.record.read import list_records
from lab.spec.declare import get_feature_values, key_field
from lab.spec.kinds import Kind, number_kind, read_text
from lab.spec.reading import Value
from lab.spec.scenario import Scenario


def _read_mutant(value: Value) -> str:
    text = read_text(value, ALLOWED)
    try:
        return check_mutant(text)
    except UsageError as error:
        raise value.problem(error.message) from None


def check_mutant(text: str) -> str:
    """Return the text of a mutant as it is written in full.

    Raises:
        UsageError: it is no mutant.
    """
    try:
        return text if text == OBSERVE else parse_mutant(text).text
    except ValueError as error:
        raise UsageError(f"the mutant {text!r}: {error}") from None


class MutantKeys(Frozen):
    """The key that changes what a rank does."""

    mutant: str = key_field("", Kind(ALLOWED, _read_mutant, {"type": "string"}), f"mutant: {EXAMPLE}")
    """One thing that a rank does differently; see mutants."""


class ExpectKeys(Frozen):
    """The expectation that the other expectations notice mutants."""

    mutants: float = key_field(0.0, number_kind("a percentage from 0 to 100", low=0, high=100), "mutants: 80")
    """At least this percentage of 20 mutants fail the other expectations; see mutants."""


def plan_mutant(scenario: Scenario, options: PlanOptions, *_: object) -> Part | None:
    """Plan the mutant of a run; None if the scenario has none.

    Raises:
        UsageError: the run records no calls, so none can be changed.
    """
    text = get_feature_values(scenario, MutantKeys).mutant
    if not text:
        return None
    if not (options.trace and scenario.trace.on) or scenario.env.get("LAB_RECORDER") == "off":
        raise UsageError("a mutant changes calls that are recorded, but this run records none", "record the trace")
    return Part(name="mutant", env={VARIABLE: text}, value=text, sentence=f"mutant: {text}")


def _add_option(parser: Parser) -> None:
    about = f"change one thing that a rank does, such as '{EXAMPLE}'; see `lab help mutants`"
    shared.add_options(parser.group("faults"), "--mutant", metavar="MUTANT", help=about, rare=True)


def _run_mutant(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    if not arguments.mutant:
        return verb(arguments)
    from lab.features.mutants.candidates import is_mutated

    if not arguments.trace:
        raise UsageError("--mutant changes calls that are recorded, but --no-trace records none", "leave out one")
    arguments.env = [*arguments.env, (VARIABLE, check_mutant(arguments.mutant))]
    known = {record.path for record in list_records(arguments.runs)}
    code = verb(arguments)
    for record in list_records(arguments.runs) if not code else ():
        if record.path not in known and not is_mutated(record):
            why = f"{record.run} has no such rank, call, or phase"
            sys.stderr.write(f"warning: the mutant changed nothing: {why}\n")
    return code


OPTION = Command(_add_option, _run_mutant)
"""The option of `lab run`."""
