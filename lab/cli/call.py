"""Calls a verb: imports only what it needs, turns errors into a sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn, Protocol

from lab.cli.output import OutputLost, guarded_output
from lab.cli.overview import VERBS, every_verb
from lab.feature import load, options_of, verbs


class Verb(Protocol):
    """A module that implements one verb."""

    def add_arguments(self, parser: Parser) -> None:
        """Declare what the verb takes."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class Options(Protocol):
    """A module of a feature that adds options to a verb of the kernel or of another feature."""

    def add_arguments(self, parser: Parser) -> None:
        """Declare them."""

    def run(self, arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
        """Call the verb, or do something else where an option asks for it; returns the exit code."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with a near match."""

    _views: argparse._MutuallyExclusiveGroup | None = None

    def one_of(self) -> argparse._MutuallyExclusiveGroup:
        """The options that say what to show, of which only one is given at a time; the same for all who ask."""
        if self._views is None:
            self._views = self.add_mutually_exclusive_group()
        return self._views

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with 2."""
        from difflib import get_close_matches

        known = [option for action in self._actions for option in action.option_strings]
        wrong = [word for word in message.split() if word.startswith("--") and "unrecognized" in message]
        close = get_close_matches(wrong[0].split("=")[0], known, n=1) if wrong else []
        hint = f"did you mean {close[0]}?" if close else f"see `{self.prog} --help`"
        sys.stderr.write(f"{self.prog}: {message}\n  hint: {hint}\n")
        sys.exit(2)

    def ask_for_names(self, how: Callable[[str], object]) -> None:
        """Put in the place of each argument's kind of names what says to a shell how to ask for them."""
        for action in self._actions:
            if "complete" in vars(action):
                vars(action)["complete"] = how(vars(action)["complete"])

    def knows(self, word: str) -> bool:
        """Whether a word is no option, or one of those that were declared; `--help` asks for all that there are."""
        option = word.split("=", maxsplit=1)[0]
        return not option.startswith("-") or (option in self._option_string_actions and option not in ("-h", "--help"))

    def takes_value(self, option: str) -> bool:
        """Whether the word behind an option, which may be cut short, is its value."""
        meant = [action for action in self._actions for name in action.option_strings if name.startswith(option)]
        return bool(meant) and meant[0].nargs != 0


def call(words: list[str]) -> int:
    """Run the verb that the words begin with, and return its exit code."""
    verb = words[0]
    if verb.startswith("-"):
        parser = Parser(prog="lab")
        parser.add_argument("--version")
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    module = load_verb(verb)
    if module is None:
        return _unknown_verb(verb)
    text = VERBS[verb] if verb in VERBS else verbs()[verb][1]
    parser = Parser(prog=f"lab {verb}", description=f"{text}.", formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    own, rest = split_rest(words[1:], parser)
    run = module.run
    if not all(map(parser.knows, own)):
        for options in reversed(options_of(verb)):  # those of a feature see the arguments before those of who needs it
            options.add_arguments(parser)
            run = partial(options.run, verb=run)
        own, rest = split_rest(words[1:], parser)
    arguments = parser.parse_args(own)
    if rest is not None and not hasattr(arguments, "rest"):
        parser.error(f"`lab {verb}` takes nothing after --")
    if rest is not None:
        arguments.rest = rest
    with guarded_output(verb) as lost:
        code = guarded(run, arguments)
    if lost:
        sys.stderr.write(f"lab: cannot write the output: {lost[0].strerror}\n")
    return code or int(bool(lost))


def split_rest(words: Sequence[str], parser: Parser) -> tuple[list[str], list[str] | None]:
    """The verb's own words, and those of a script or command, which follow `--`; None where there are none.

    Where the parser has a default `own_words`, the rest begins without `--` too, behind so many words of the verb.
    """
    left = parser.get_default("own_words")
    value_follows = False
    for at, word in enumerate(words):
        if word == "--":
            return list(words[:at]), list(words[at + 1 :])
        if value_follows or left is None:
            value_follows = False
        elif word.startswith("-"):
            value_follows = parser.takes_value(word)
        elif left == 0:
            return list(words[:at]), list(words[at:])
        else:
            left -= 1
    return list(words), None


def load_verb(verb: str) -> Verb | None:
    """The module of a verb; None if there is no such verb."""
    if verb in VERBS:
        return import_module(f"lab.cli.cmd_{verb}")
    return load(verbs()[verb][0]) if verb in verbs() else None


def guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run a verb; whatever a person can cause becomes a sentence, never a traceback."""
    from lab.errors import LabError, unforeseen

    try:
        return run(arguments)
    except LabError as error:
        _say(error, getattr(arguments, "json", False))
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except (BrokenPipeError, OutputLost):  # for whoever called
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
    from lab.report.harmless import plain

    sys.stderr.write(f"lab: {plain(str(error))}\n")


def _unknown_verb(verb: str) -> int:
    from difflib import get_close_matches

    close = get_close_matches(verb, every_verb(), n=1)
    hint = f"did you mean `lab {close[0]}`?" if close else "see `lab --help`"
    sys.stderr.write(f"lab: there is no verb {verb!r}\n  hint: {hint}\n")
    return 2
