"""Entry point of `lab`: finds the verb, imports only what it needs, turns errors into a sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, Protocol

from lab import __version__

VERBS = {
    "up": "start a cluster of nodes",
    "run": "run a scenario or a script on every rank and say passed or failed",
    "status": "show clusters and their nodes",
    "logs": "show what ranks printed",
    "exec": "run a command in a node",
    "shell": "open a shell in a node",
    "down": "remove a cluster and everything that belongs to it",
    "runs": "list runs",
    "show": "show the result of a run",
    "report": "write a run as one HTML page: verdict, pictures, timeline, traffic, logs",
    "explain": "say what happened in a run: who waited for whom, who differed, where time went",
    "trace": "show what ranks sent each other; write it for Perfetto or Chrome",
    "diff": "show what two runs did differently",
    "learn": "take a scenario as a lesson: predict, run, compare",
    "new": "write a scenario and its script to start from",
    "scenarios": "list scenarios with one line each",
    "validate": "check scenarios without running them",
    "doctor": "look at engine, image, kernel and machine",
    "image": "build the image of the nodes",
    "completion": "print a completion script for your shell",
}
_EPILOG = """examples:
  lab up --nodes 3                                start three nodes
  lab run scenarios/scatter.yaml                  run a scenario on them (or on nodes of its own)
  lab run train.py --nodes 2 -- --epochs 3        run any script
  lab down                                        remove them

exit codes: 0 passed, 1 failed, 2 bad usage or scenario, 3 no engine, 4 hung, 130 interrupted"""


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the words after `lab`; None: those of this process, which then ends.
    """
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130
    finally:
        if argv is None:
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C does not change how an ended command ended


def _main(words: list[str]) -> int:
    verb = words[0] if words and not words[0].startswith("-") else None
    if verb is None:
        return _without_verb(words)
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
    from lab.errors import LabError

    _end_like_interrupt()
    try:
        return module.run(arguments)
    except LabError as error:
        _say(error, getattr(arguments, "json", False))
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read our output has seen enough
        return 0
    except Exception as error:
        if os.environ.get("LAB_DEBUG"):
            raise
        _say(_unforeseen(error), getattr(arguments, "json", False))
        return 1


def _unforeseen(error: Exception) -> Exception:
    """What nobody foresaw, as a sentence; the traceback is kept in a file."""
    import tempfile
    import traceback

    from lab.errors import LabError

    first = (str(error).splitlines() or [""])[0][:300]
    with tempfile.NamedTemporaryFile("w", prefix="lab-error-", suffix=".txt", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    return LabError(
        f"something went wrong that should not: {type(error).__name__}: {first}",
        f"please report it with {file.name}; with LAB_DEBUG=1 the traceback is shown",
    )


def _end_like_interrupt() -> None:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: what it made is removed first."""
    import signal

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def _say(error: BaseException, as_json: bool) -> None:
    if as_json:
        import json

        data = {"error": getattr(error, "message", str(error)), "hint": getattr(error, "hint", "")}
        print(json.dumps({**data, "exit_code": getattr(error, "exit_code", 1)}))
    sys.stderr.write(f"lab: {error}\n")


def _without_verb(words: Sequence[str]) -> int:
    parser = overview()
    parser.parse_args(list(words))
    parser.print_help()
    return 0 if not words else 2


def overview() -> argparse.ArgumentParser:
    """The parser behind `lab --help`; knows the verbs by name only."""
    listing = "\n".join(f"  {name:<12}{text}" for name, text in VERBS.items())
    parser = Parser(
        prog="lab",
        usage="lab VERB [options]",
        description=f"A distributed-PyTorch laboratory.\n\nverbs:\n{listing}",
        epilog=f"{_EPILOG}\n\n`lab VERB --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lab {__version__}")
    return parser


def _unknown_verb(verb: str) -> int:
    from difflib import get_close_matches

    close = get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean `lab {close[0]}`?" if close else "see `lab --help`"
    sys.stderr.write(f"lab: there is no verb {verb!r}\n  hint: {hint}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
