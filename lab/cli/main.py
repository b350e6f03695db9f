"""Entry point of `lab`: show the overview, or run a verb."""

from __future__ import annotations

import gc
import os
import sys

try:
    from lab import DISTRIBUTION, __version__  # noqa: F401  # only ours has the first
except ImportError:  # `lab/__init__.py` is not ours
    sys.stderr.write(
        "lab: another distribution has overwritten the package `lab` of torch-lab\n"
        "  hint: `pip uninstall lab`, or the distribution's name if it has another one; then "
        "`pip install --force-reinstall torch-lab`\n"
    )
    sys.exit(2)

TYPE_CHECKING = False  # not from typing, which takes long to import
if TYPE_CHECKING:
    from typing import Any


def main(argv: list[str] | tuple[str, ...] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the words after `lab`; None: those of this process, which ends afterwards.
    """
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as error:  # from argparse: after --help, or a wrong option
        return int(error.code or 0)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of our output is gone
        return 0
    except OSError as error:  # of standard output: verbs handle their own errors
        return _not_written(error)
    finally:
        if argv is None and "signal" in sys.modules:
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not change the exit code


def run_program() -> None:
    """Run the program `lab`, then exit at once: the interpreter's own shutdown would take 40 ms."""
    gc.set_threshold(100_000)  # commands are too short for garbage collection to pay
    sys.stdout = sys.stdout or open(os.devnull, "w")  # it may be closed
    sys.stderr = sys.stderr or open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        make_printable(stream)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            pass  # the reader of our output is gone
        except OSError as error:
            code = code or _not_written(error)
    os._exit(code)


def _not_written(error: OSError) -> int:
    try:
        os.write(2, f"lab: cannot write the output: {error.strerror}\n".encode())
    except OSError:
        pass
    return 1


def make_printable(stream: Any) -> None:
    """Let a stream take any text: replace what its encoding lacks, unless the user chose how to handle errors."""
    if stream.errors not in ("strict", "backslashreplace", "surrogateescape"):
        return
    stream.reconfigure(errors="backslashreplace" if stream.encoding.lower() in ("utf-8", "utf8") else "replace")


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        from lab.cli.overview import render_overview

        print(render_overview())
        return 0
    if words[0] == "--version":
        print(f"lab {__version__}")
        return 0
    from lab.engine.interrupts import raise_interrupts

    with raise_interrupts():  # otherwise an interrupt during an import can be lost
        from lab.cli.call import run_verb

        return run_verb(words)


if __name__ == "__main__":
    run_program()
