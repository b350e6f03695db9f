#!python
"""The program `lab` as it is installed: says a word if it is interrupted before it can do more, not a traceback.

An entry point would be called by a script of pip's, which imports `re` before anything of ours: a third of a start.
What comes before the first line of any script, while Python itself starts, Python answers in its own words.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, for a tenth of its time
import os


def _end(*_: object) -> None:
    """Nothing has been made yet."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:  # else somebody wants it ignored
        _signal.signal(_signal.SIGINT, _end)
    from lab.cli.main import command

    _signal.signal(_signal.SIGINT, before)
    command()
