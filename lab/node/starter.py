"""The process of a starter: a program, or a function called in a fork of the warm agent, that starts workers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import traceback
from collections.abc import Mapping
from typing import NoReturn

from .messages.agent import PYTHON, STUB, WorkerStart
from .rank import worker

_STUB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stub.py")
_COLD = """\
import sys
del sys.path[0]  # the folder that ranks may write to
import importlib
module, function, *sys.argv = sys.argv[1:]
sys.exit(getattr(importlib.import_module(module), function)())
"""


def refuse_missing(start: WorkerStart) -> None:
    """Refuse a starter whose program, or what its workers import, is not in this node.

    Raises:
        FileNotFoundError: something is missing.
    """
    program = start.argv[0]
    if not start.entry and program != PYTHON and _find(program) is None:
        raise FileNotFoundError(f"it has no {program}, which is to start the workers")
    for module in start.modules:
        if importlib.util.find_spec(module) is None:
            raise FileNotFoundError(f"its Python has no {module}, which the workers need")


def _find(program: str) -> str | None:
    """Its path; what is installed beside the Python of the node counts first, whether or not PATH names that folder."""
    beside = os.path.dirname(sys.executable)
    return shutil.which(program, path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))


def run(start: WorkerStart, changed_environment: Mapping[str, str], *, cold: bool) -> NoReturn:
    """Become the starter; `argv` names the Python of the node and the stub by `PYTHON` and `STUB`."""
    words = {PYTHON: sys.executable, STUB: _STUB}
    argv = [words.get(word, word) for word in start.argv]
    if not start.entry:
        path = _find(argv[0]) or argv[0]
        os.execv(path, [path, *argv[1:]])
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
