"""Run a verb: import only what it needs, guard its output, and turn errors into a sentence and an exit code.

A verb that does something continues when its output cannot be written: it still removes a cluster or judges a run.
A verb that only shows something ends then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, Protocol

from lab.cli.overview import VERBS, describe_verb, list_all_verbs
from lab.feature import all_entries, import_entry, options_of

_INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")

ENDS_WITH_READER = ("logs", "watch")
"""Verbs that can print forever."""


class OutputLost(OSError):
    """Standard output cannot be written, for another reason than a closed pipe."""


class Output:
    """A stream, text or binary, that passes its errors to a callback.

    Args:
        stream: where the data goes.
        lose: called with each error; it can raise another one.
    """

    def __init__(self, stream: Any, lose: Callable[[OSError], object]) -> None:
        self._stream, self._lose = stream, lose

    def write(self, data: Any) -> int:
        """Write the data, or drop it after an error."""
        try:
            return int(self._stream.write(data))
        except OSError as error:
            self._lose(error)
            return len(data)

    def flush(self) -> None:
        """Flush the stream, or drop its buffer after an error."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    @property
    def buffer(self) -> Output:
        """The underlying binary stream."""
        return Output(self._stream.buffer, self._lose)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded_output(verb: str) -> Iterator[list[OSError]]:
    """Guard the standard streams while a verb runs; yield the errors of standard output to report."""
    lost: list[OSError] = []
    out, err = sys.stdout, sys.stderr

    def lose_output(error: OSError) -> None:
        _drop_rest(out)
        if verb in ENDS_WITH_READER:
            raise error if isinstance(error, BrokenPipeError) else OutputLost(error.errno, error.strerror)
        if not isinstance(error, BrokenPipeError):  # a closed pipe is not an error
            lost.append(error)

    guarded: Any = Output(out, lose_output), Output(err, lambda _: _drop_rest(err))
    sys.stdout, sys.stderr = guarded
    try:
        yield lost
        guarded[0].flush()
    finally:
        if sys.stdout is guarded[0]:
            sys.stdout = out
        if sys.stderr is guarded[1]:
            sys.stderr = err


def _drop_rest(stream: Any) -> None:
    """Send what a stream holds, and what follows, to the null device."""
    with suppress(OSError, ValueError):  # it is not a file
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def help_in(docstring: str | None) -> str:
    """Return the text below the first line of a verb's docstring, for the end of the verb's help."""
    return (docstring or "").partition("\n\n")[2].rstrip()


class Verb(Protocol):
    """A module that implements one verb."""

    def add_arguments(self, parser: Parser) -> None:
        """Declare the arguments of the verb."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the verb; return the exit code."""


class Command(NamedTuple):
    """A verb of a module with several verbs, or options that a feature adds to another verb."""

    add_arguments: Callable[[Parser], None]
    run: Callable[..., int]
    """Of options: also gets `verb`, a function that runs the verb; it calls that unless an option replaces the verb."""


class Parser(argparse.ArgumentParser):
    """A parser with groups and rare options, whose errors are one sentence with a near match."""

    shared_options: Collection[str] = ()
    """Options that several verbs have."""
    _views: argparse._MutuallyExclusiveGroup | None = None

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the group of options with this title."""
        made = (group for group in self._action_groups if group.title == title)
        return next(made, None) or self.add_argument_group(title)

    def hide_rare(self) -> None:
        """Hide options that are marked as rare from the help; name `--help-all`, which shows them."""
        rare = [action for action in self._actions if getattr(action, "rare", False)]
        for action in rare:
            action.help = argparse.SUPPRESS
        if rare:
            self.add_argument("--help-all", action="help", help=f"show all options: {len(rare)} more")

    def one_of(self) -> argparse._MutuallyExclusiveGroup:
        """Return the shared group of options that select what to show; only one of them is allowed."""
        if self._views is None:
            self._views = self.add_mutually_exclusive_group()
        return self._views

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with 2."""
        from lab.plan.plan import insert_placeholders
        from lab.spec.kinds import is_unit

        words = message.partition("unrecognized arguments: ")[2]
        unknown, filled = words.split(), insert_placeholders(words)
        options = [word.split("=")[0] for word in unknown if word.startswith("-")]
        option = next((one for one in options if one in self.shared_options), options[0] if options else "")
        longer = (name for name in self._option_string_actions if name.startswith(f"-{option}"))  # `-n` for --nodes
        close = option and (_near(option, self._option_string_actions) or next(longer, None))
        if (choice := _INVALID_CHOICE.search(message)) is not None:
            close = _near(choice[1], re.findall(r"[\w-]+", choice[2]))
        hint = f"did you mean {close}?" if close else f"see `{self.prog} --help`"
        if any(map(is_unit, unknown)):
            hint = "write a quantity without a space, such as 5m or 1GiB"
        elif "rest" in self._defaults and option in self.shared_options:
            hint = f"{self.prog} has no {option}, see `{self.prog} --help`; an option of the script comes after --"
        elif option[:2] == "--" and "rest" in self._defaults and (option[:3] != (close or "")[:3] or filled != words):
            hint = f"options of the script come after --: `-- {filled}`"  # torchrun needs no --
        sys.exit(_refuse(self.prog, message, hint))

    def ask_for_names(self, how: Callable[[str], object]) -> None:
        """Replace each argument's kind of names by a shell's way to complete such names."""
        for action in self._actions:
            if "complete" in vars(action):
                vars(action)["complete"] = how(vars(action)["complete"])

    def knows(self, word: str) -> bool:
        """Return whether a word is a declared option or no option; false for `--help`, which needs all options."""
        option = word.split("=", maxsplit=1)[0]
        is_help = option.startswith(("-h", "--help"))
        return not option.startswith("-") or (option in self._option_string_actions and not is_help)

    def expects_value(self, option: str) -> bool:
        """Return whether the word after an option, which can be abbreviated, is its value."""
        meant = (action for name, action in self._option_string_actions.items() if name.startswith(option))
        action = next(meant, None)
        return action is not None and action.nargs != 0


def run_verb(words: list[str]) -> int:
    """Run the verb that the words begin with, and return its exit code."""
    verb = words[0]
    if verb.startswith("-"):
        parser = Parser(prog="lab")
        parser.add_argument("--version")
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    if (module := load_verb(verb)) is None:
        close = _near(verb, list_all_verbs())
        hint = f"did you mean `lab {close}`?" if close else "see `lab --help`"
        return _refuse("lab", f"there is no verb {verb!r}", hint)
    text, form = describe_verb(verb), argparse.RawDescriptionHelpFormatter
    about, unused = f"{text[0].upper()}{text[1:]}.", partial(form, width=0)  # it need not ask for the terminal's width
    parser = Parser(prog=f"lab {verb}", description=about, formatter_class=unused, epilog=help_in(module.__doc__))
    module.add_arguments(parser)
    own, rest = split_rest(words[1:], parser)
    run = module.run
    if not all(map(parser.knows, own)):
        for options in reversed(options_of(verb)):  # options of a feature run before those of features that need it
            options.add_arguments(parser)
            run = partial(options.run, verb=run)
        own, rest = split_rest(words[1:], parser)
        if "--help-all" in own:
            own = ["--help"]
        else:
            parser.hide_rare()
    parser.formatter_class = form
    arguments = parser.parse_args(own)
    if rest is not None:
        if not hasattr(arguments, "rest"):
            parser.error(f"`lab {verb}` accepts no arguments after --")
        arguments.rest = rest
    with guarded_output(verb) as lost:
        code = run_guarded(run, arguments)
    if lost:
        sys.stderr.write(f"lab: cannot write the output: {lost[0].strerror}\n")
    return code or int(bool(lost))


def split_rest(words: Sequence[str], parser: Parser) -> tuple[list[str], list[str] | None]:
    """Split words into the verb's own and those of a script or command after `--`; None if there is no such part.

    If the parser has a default `own_words`, the rest also begins after that many of the verb's own words, without `--`.
    """
    left = parser.get_default("own_words")
    value_follows = False
    for at, word in enumerate(words):
        if word == "--":
            return list(words[:at]), list(words[at + 1 :])
        if value_follows or left is None:
            value_follows = False
        elif word.startswith("-"):
            value_follows = parser.expects_value(word)
        elif left == 0:
            return list(words[:at]), list(words[at:])
        else:
            left -= 1
    return list(words), None


def load_verb(verb: str) -> Verb | None:
    """Import the module of a verb; return None if there is no such verb."""
    if verb in VERBS:
        return import_module(f"lab.cli.cmd_{verb}")
    module, *_ = all_entries("verbs").get(verb, ("",))
    return import_entry(module) if module else None


def run_guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run a verb; turn each error that a user can cause into a sentence, without a traceback."""
    from lab.errors import LabError, wrap_internal_error
    from lab.report.sanitize import sanitize_plain

    try:
        return run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except (BrokenPipeError, OutputLost):  # the caller handles them
        raise
    except Exception as error:
        if os.environ.get("LAB_DEBUG") and not isinstance(error, LabError):
            raise
        failure = error if isinstance(error, LabError) else wrap_internal_error(error)
        if getattr(arguments, "json", False):
            print(json.dumps({"error": failure.message, "hint": failure.hint, "exit_code": failure.exit_code}))
        sys.stderr.write(f"lab: {sanitize_plain(str(failure))}\n")
        return failure.exit_code


def _refuse(program: str, message: str, hint: str) -> int:
    """Report a wrong command line; return its exit code."""
    if "--json" in sys.argv:
        print(json.dumps({"error": message, "hint": hint, "exit_code": 2}))
    sys.stderr.write(f"{program}: {message}\n  hint: {hint}\n")
    return 2


def _near(word: str, choices: Iterable[str]) -> str | None:
    from lab.spec.reading import find_near_match

    return find_near_match(word, choices)
