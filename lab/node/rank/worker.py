"""The process of one rank, from its start to its exit code: prepare it, run the user's script, and end it."""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import gc
import importlib.machinery
import io
import json
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from os import _exit  # imported here because a script may replace `os._exit`
from typing import Any, NoReturn

from .. import warm
from ..channels import SPEC_VARIABLE
from ..hooks import FEATURES, hooks, load_hooks
from ..messages.agent import Imported
from ..processes import read_words, readable_bytes
from ..recorder import install as recorder
from ..recorder.journal import journal
from ..recorder.patching import when_imported
from ..statement import STACK_SIGNAL
from . import groups, joining, note
from .note import describe_error, without_frames

_ORDER_DEADLINE_S = 1.0
_COMPILE, _EXECUTE, _SEND_STATEMENT = compile, exec, note.send_statement
"""Saved before any package runs."""
_OWN_CODE = (__file__, groups.__file__, os.path.join(os.path.dirname(recorder.__file__), ""), FEATURES)
_mpi_pids: list[int] = []
"""The process in which MPI may have been started."""
load_hooks()


class OrderedWriter(io.FileIO):
    """Standard output or error, unbuffered; the agent receives writes to the two streams in their order.

    The two are different pipes. So a switch from one to the other waits (at most 1 s) until the agent has read the
    other pipe.
    """

    last: OrderedWriter | None = None
    """The stream that this process wrote to last."""

    def write(self, data: Any) -> int:
        """Write everything, however large, even if a signal handler interrupts."""
        previous = OrderedWriter.last
        if previous is not None and previous is not self and not previous.closed:
            wait_until_read(previous.fileno())
        OrderedWriter.last = self
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += super().write(view[done:]) or 0
        return done


def wait_until_read(pipe: int) -> None:
    """Wait, at most 1 s, until the agent has read everything in a pipe."""
    end = time.monotonic() + _ORDER_DEADLINE_S
    with suppress(OSError):  # the script has replaced the stream
        # Bytes that wait in a terminal are input.
        while readable_bytes(pipe) and not os.isatty(pipe) and time.monotonic() < end:
            time.sleep(0.0001)


def run_worker(spec: dict[str, Any]) -> None:
    """Run the script of one rank in this process, a fork of the warm agent, and never return.

    `missing` in the specification are slow parts of torch. If the script imports them, the agent imports them before
    the next run.
    """
    code, names = _run(spec)

    def report_imports() -> None:
        if imported := tuple(name for name in spec.get("missing", ()) if name in sys.modules):
            with suppress(OSError):  # the next run imports them itself
                note.send_statement(spec["note_socket"], Imported(spec["rank"], time.time(), names=imported))

    _undisturbed(report_imports)
    _leave(code, names)


def _run(spec: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Run the script; return its exit code and its globals."""
    _open_streams()
    faulthandler.enable(file=spec["stack_fd"], all_threads=True)
    faulthandler.register(STACK_SIGNAL, file=spec["stack_fd"], all_threads=True)
    sys.argv = list(spec["argv"])
    folder = spec["folder"]
    sys.path[0] = os.path.dirname(os.path.join(folder, sys.argv[0]))
    if sys.path[0] != folder:  # the packages of a repository, as if they were installed
        sys.path += [folder, os.path.join(folder, "src")]
    groups.use_run_store()
    groups.choose_backend(spec["rank"], spec["folder"], spec["note_socket"])
    note.report_threads(spec["rank"], spec["folder"], spec["note_socket"])
    groups.keep_destroyed_groups()
    when_imported("mpi4py", lambda _: _watch_native_exit())
    for prepare in hooks("worker"):
        prepare(spec)
    if "trace_fd" in spec:
        recorder.start_recording(spec["rank"], spec["trace_fd"], spec["folder"], spec["trace_values"])
        joining.prepare_process(spec["folder"], spec["trace_values"], spec["note_socket"])
    groups.rewrite_address(spec["rank"], spec["folder"], spec["note_socket"])  # around the recorder
    # No package may find this module, which decides on the exit code: an import returns a copy without effect.
    sys.modules.pop(__name__, None)
    vars(sys.modules[__package__]).pop(__name__.rpartition(".")[2], None)
    for prepare in hooks("environment"):
        prepare(spec)
    path = os.path.join(spec["folder"], spec["script"])
    names = vars(_main_module(path))
    return _run_script(path, names, spec), names


def start_cold() -> None:
    """Run a worker in a new interpreter."""
    spec = json.loads(os.environ.pop(SPEC_VARIABLE))
    for fd in (fd for name, fd in spec.items() if name.endswith("_fd")):
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    code, names = _run(spec)
    _leave(code, names, cold=True)


def _open_streams() -> None:
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw = OrderedWriter(fd, "w", closefd=False)
        raw.name = f"<{name}>"
        errors = "strict" if name == "stdout" else "backslashreplace"
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)
        stream.mode = "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]


def _main_module(path: str) -> types.ModuleType:
    """Return the module `__main__` as the interpreter makes it for a script."""
    main = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(main).update(__file__=path, __builtins__=__builtins__, __cached__=None, __loader__=loader)
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main


def _run_script(path: str, namespace: dict[str, Any], spec: dict[str, Any]) -> int:
    """Run the script; return its exit code, or the negative number of the signal that has to end the process."""
    try:
        try:
            with io.open_code(path) as file:
                code = _COMPILE(file.read(), path, "exec", dont_inherit=True)
            _EXECUTE(code, namespace)
        except SystemExit as error:
            if status := _exit_code(error.code):
                _report(error, spec)
            else:
                frames = reversed([*traceback.walk_tb(error.__traceback__)])
                journal.add("exit", at=note.line_in(spec["folder"], frames))
            return status
        except KeyboardInterrupt as error:
            without_frames(error, _OWN_CODE)
            sys.excepthook(type(error), error, error.__traceback__)
            return -signal.SIGINT
    except BaseException as failure:  # from the script, or from a signal handler during another report
        _undisturbed(partial(_report, failure, spec), times=2)
        _undisturbed(partial(sys.excepthook, type(failure), failure, failure.__traceback__))
        return 1
    return 0


def _undisturbed(action: Callable[[], object], times: int = 1) -> None:
    """Call a function, at most `times` times if it fails: a handler of a signal may raise at any moment."""
    for _ in range(times):
        try:
            action()
            return
        except BaseException:
            traceback.print_exc()


def _exit_code(value: Any) -> int:
    if value is None or isinstance(value, int):
        return (value or 0) & 0xFF
    print(value, file=sys.stderr)
    return 1


def _report(error: BaseException, spec: dict[str, Any]) -> None:
    """Report an error to the agent, before anything else can fail because of it."""
    with suppress(OSError, ValueError):  # the traceback is still printed
        _SEND_STATEMENT(spec["note_socket"], describe_error(spec["rank"], without_frames(error, _OWN_CODE)))


def _leave(code: int, names: dict[str, Any], *, cold: bool = False) -> None:
    """End like an interpreter, without the 0.2 s that dismantling torch takes.

    Join threads and run `atexit` functions. Drop the script's globals, which flushes and closes its files. Flush the
    standard streams and C's own. If threads of torch still run, such as gloo's, keep the globals and only close files.
    The end of a DDP object holds the interpreter's lock and waits for a thread of gloo, which may need that lock. A
    finalizing interpreter ends such a thread; this one does not finalize.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        threading.excepthook = lambda *_: None  # an interpreter that ends stops its daemon threads silently
        import atexit

        atexit._run_exitfuncs()
        if not _has_threads_of_torch(cold):
            for name in [name for name in names if name != "__builtins__"]:
                names[name] = None
            gc.collect()
        else:
            _close_files()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        ctypes.CDLL(None).fflush(None)
    except BaseException:
        traceback.print_exc()
        code = code or 1
    recorder.stop_recording()
    if code < 0:  # last, like an interrupted interpreter
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    _exit_natively(code)


def _watch_native_exit() -> None:
    """Run the exit handlers that native code registers from MPI's import on, but none that were registered before.

    MPICH reports a success to its launcher only when the process exits; otherwise `mpiexec` treats the end of a rank as
    a failure, and kills the others. Handlers run in the reverse order of their registration, and the first that is
    registered here ends the process: torch's handlers would take 0.2 s.
    """
    if _mpi_pids != [os.getpid()]:
        _mpi_pids[:] = [os.getpid()]
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)


def _exit_natively(code: int) -> NoReturn:
    """End this process; if MPI was started and nothing failed, the way that MPI's launcher expects."""
    if code == 0 and _mpi_pids == [os.getpid()]:
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()  # as mpi4py does when an interpreter ends
        ctypes.PyDLL(None).exit(code)  # keeps the interpreter's lock, so no other Python thread runs meanwhile
    _exit(code)


def _has_threads_of_torch(cold: bool) -> bool:
    """Return whether native threads still run that may need the interpreter's lock.

    A fork begins with one thread, so any other one counts. A new interpreter has those of OpenBLAS, which have no name.
    """
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:  # the script has reached its limit of open files
        return True
    if not cold:
        return len(threads) > 1
    names = read_words(*(f"/proc/self/task/{thread}/comm" for thread in threads))
    return any(words[0].startswith(("gloo", "pt_")) for words in names if words)


def _close_files() -> None:
    """Flush and close every file that the script left open, wrappers first."""
    open_files = [item for item in gc.get_objects() if issubclass(type(item), io.IOBase)]
    buffers = [file for file in open_files if type(file) in (io.BufferedWriter, io.BufferedRandom)]
    texts = [file for file in open_files if type(file) is io.TextIOWrapper]
    others = [file for file in open_files if type(file).__module__ not in ("_io", __name__)]  # gzip, bz2, ...
    standard = (sys.stdin, sys.stdout, sys.stderr)
    for file in (*texts, *others, *buffers):
        if file not in standard:
            with suppress(OSError, ValueError):  # its pipe or socket is closed
                file.close()


def prepare_fork(changed_environment: dict[str, str]) -> None:
    """Adjust a fork of the warm agent before it runs a script; variables of the run are set already."""
    import multiprocessing.process
    import tempfile

    tempfile.tempdir = None  # an import in the agent may have asked for the folder, which TMPDIR now names
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    warm.renew_random_state()
    warm.apply_environment(changed_environment)
