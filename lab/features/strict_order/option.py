"""`lab run --strict-order`, `lab test --strict-order`, and the key `strict_order` of scenarios."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.cli import arguments as shared
from lab.cli.call import Command, Parser
from lab.errors import UsageError
from lab.features.strict_order.on_node.rules import VARIABLE
from lab.frozen import Frozen
from lab.spec.declare import get_feature_values, key_field
from lab.spec.kinds import boolean_kind

if TYPE_CHECKING:
    from lab.plan.plan import Part, PlanOptions
    from lab.spec.scenario import Scenario

_UNRECORDED = "--strict-order orders the calls that it records, but {} turns the trace off"
_HINT = "leave out one of them"


class StrictOrderKeys(Frozen):
    """The key that asks for a strict transport."""

    strict_order: bool = key_field(False, boolean_kind(), "strict_order: true")
    """Run by the rules of a strict transport, such as NCCL; see strict order."""


def plan_strict_order(scenario: Scenario, options: PlanOptions, *_: object) -> Part | None:
    """Plan the strict transport of a run; None if the scenario does not ask for it.

    Raises:
        UsageError: the run records no calls, so it cannot order them.
    """
    if not get_feature_values(scenario, StrictOrderKeys).strict_order:
        return None
    from lab.plan.plan import Part

    off = "" if options.trace else "--no-trace"
    off = off or ("" if scenario.trace.on else "`trace: false`")
    if off := off or ("LAB_RECORDER=off" if scenario.env.get("LAB_RECORDER") == "off" else ""):
        raise UsageError(_UNRECORDED.format(off), _HINT)
    sentence = "strict order: calls obey the rules of a strict transport, such as NCCL"
    return Part(name="strict_order", env={VARIABLE: "1"}, value=True, sentence=sentence)


def _add_option(parser: Parser) -> None:
    about = "complete and order calls as NCCL may, and reject what it rejects; see `lab help strict-order`"
    shared.add_options(parser.group("record"), "--strict-order", action="store_true", help=about, rare=True)


def _run_strictly(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    if arguments.strict_order:
        if not arguments.trace:
            raise UsageError(_UNRECORDED.format("--no-trace"), _HINT)
        arguments.env = [*arguments.env, (VARIABLE, "1")]
    return verb(arguments)


OPTION = Command(_add_option, _run_strictly)
"""The option of `lab run` and `lab test`."""
