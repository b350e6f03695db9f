"""What native code has to do at the end of a worker in which MPI was started."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys
from lab.node.rank import worker
libc = ctypes.CDLL(None)
def at_exit(word):
    libc.__cxa_atexit(libc.perror, word, None)
at_exit(b"registered before")
worker._watch_native_exit()
import mpi4py
at_exit(b"registered after")
worker._exit_natively(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("code", "done"), [(0, "registered after"), (3, "")])
def test_what_is_registered_after_the_import_of_mpi_is_done_where_all_is_well(tmp_path, code: int, done: str):
    (tmp_path / "mpi4py.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    ended = subprocess.run([sys.executable, "-c", program, str(code)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == code
    assert ended.stderr.partition(":")[0] == done
    assert "before" not in ended.stderr
