"""The process of a starter: a program, or a function called in a fork of the warm agent, that starts workers."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import traceback
from collections.abc import Mapping
from typing import NoReturn

from . import worker
from .start_messages import PYTHON, STUB, WorkerStart

_STUB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stub.py")
_COLD = """\
import sys
del sys.path[0]  # the folder that ranks may write to
import importlib
module, function, *sys.argv = sys.argv[1:]
sys.exit(getattr(importlib.import_module(module), function)())
"""


def refuse_missing(start: WorkerStart) -> None:
    """Refuse a program that this node does not have.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    program = start.argv[0]
    if not start.entry and program != PYTHON and shutil.which(program) is None:
        raise FileNotFoundError(f"there is no program {program} here")


def run(start: WorkerStart, changed_environment: Mapping[str, str], *, cold: bool) -> NoReturn:
    """Become the starter; `argv` names the Python of the node and the stub by `PYTHON` and `STUB`."""
    words = {PYTHON: sys.executable, STUB: _STUB}
    argv = [words.get(word, word) for word in start.argv]
    if not start.entry:
        os.execvp(argv[0], argv)
    module, _, function = start.entry.partition(":")
    if cold:
        os.execv(sys.executable, [sys.executable, "-u", "-c", _COLD, module, function, *argv])
    worker.prepare_fork(dict(changed_environment))
    sys.argv = argv
    code = 1
    try:
        code = _code_of(getattr(importlib.import_module(module), function)())
    except SystemExit as error:
        code = _code_of(error.code)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _code_of(value: object) -> int:
    if value is None or isinstance(value, int):
        return (value or 0) & 0xFF
    print(value, file=sys.stderr)
    return 1
