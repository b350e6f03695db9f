"""Calls a verb: imports only what it needs, turns errors into a sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, Protocol

from lab.cli.interrupts import interruptible
from lab.cli.overview import VERBS


class Verb(Protocol):
    """A module of this package that implements one verb."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what the verb takes."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with a near match."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with 2."""
        from difflib import get_close_matches

        known = [option for action in self._actions for option in action.option_strings]
        wrong = [word for word in message.split() if word.startswith("--") and "unrecognized" in message]
        close = get_close_matches(wrong[0].split("=")[0], known, n=1) if wrong else []
        hint = f"did you mean {close[0]}?" if close else f"see `{self.prog} --help`"
        sys.stderr.write(f"{self.prog}: {message}\n  hint: {hint}\n")
        sys.exit(2)


def call(words: list[str]) -> int:
    """Run the verb that the words begin with, and return its exit code."""
    with interruptible():
        return _call(words)


def _call(words: list[str]) -> int:
    verb = words[0]
    if verb.startswith("-"):
        parser = Parser(prog="lab")
        parser.add_argument("--version")
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    if verb not in VERBS:
        return _unknown_verb(verb)
    module = load_verb(verb)
    parser = Parser(
        prog=f"lab {verb}", description=f"{VERBS[verb]}.", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    own, rest = split_rest(words[1:])
    arguments = parser.parse_args(own)
    if rest is not None and not hasattr(arguments, "rest"):
        parser.error(f"`lab {verb}` takes nothing after --")
    if rest is not None:
        arguments.rest = rest
    return guarded(module, arguments)


def split_rest(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The words before `--`, and those after it; None where there is no `--`."""
    if "--" not in words:
        return list(words), None
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def load_verb(verb: str) -> Verb:
    """The module of a verb."""
    return import_module(f"lab.cli.cmd_{verb}")


def guarded(module: Verb, arguments: argparse.Namespace) -> int:
    """Run a verb; whatever a person can cause becomes a sentence, never a traceback."""
    from lab.errors import LabError, unforeseen

    try:
        return module.run(arguments)
    except LabError as error:
        _say(error, getattr(arguments, "json", False))
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:  # for whoever called
        raise
    except Exception as error:
        if os.environ.get("LAB_DEBUG"):
            raise
        _say(unforeseen(error), getattr(arguments, "json", False))
        return 1


def _say(error: BaseException, as_json: bool) -> None:
    if as_json:
        import json

        data = {"error": getattr(error, "message", str(error)), "hint": getattr(error, "hint", "")}
        print(json.dumps({**data, "exit_code": getattr(error, "exit_code", 1)}))
    from lab.report.harmless import harmless

    sys.stderr.write(f"lab: {harmless(str(error))}\n")


def _unknown_verb(verb: str) -> int:
    from difflib import get_close_matches

    close = get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean `lab {close[0]}`?" if close else "see `lab --help`"
    sys.stderr.write(f"lab: there is no verb {verb!r}\n  hint: {hint}\n")
    return 2
