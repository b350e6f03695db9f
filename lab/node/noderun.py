"""One run on one node: its folder, its workers, what they say, and that nothing of it remains."""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from typing import Any

from . import check, launch, note, processes, store, wire

_READ_BYTES = 1 << 16
_NOTE_BYTES = 1 << 18
_STRAY_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")

Emit = Callable[[dict[str, Any]], None]


class NodeRun:
    """The state of the run that this node takes part in.

    Args:
        run: name of the run.
        root: folder in which the run's own folder is made.
        options: `uid`, `gid`, `cold`, `container` (whether /tmp belongs to this node alone), `memory_bytes`, `trace`
            (`values`; None: no traces).
        emit: sends a message to the lab.
    """

    def __init__(self, run: str, root: str, options: dict[str, Any], emit: Emit) -> None:
        self.run = run
        self.options = options
        self.emit = emit
        self.home = os.path.join(root, "run")
        self.folder = os.path.join(self.home, "work")
        self.workers: dict[int, launch.Worker] = {}
        self.store_pid: int | None = None
        self.going = False
        self.imported: set[str] = set()
        """Slow parts of torch that a worker had to import."""
        self._archive: list[bytes] = []
        self._oom_kills = processes.oom_kills()
        self._stray = _listing() if options["container"] else set()
        shutil.rmtree(self.home, ignore_errors=True)
        os.makedirs(os.path.join(self.home, "home"), mode=0o755)
        os.makedirs(self.folder)
        os.makedirs(os.path.join(self.home, "tmp"))
        self._note_path = os.path.join(self.home, "notes")
        self.notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notes.bind(self._note_path)
        self.notes.setblocking(False)

    # -- before the start

    def take_files(self, chunk: str, last: bool) -> None:
        """Take a piece of the compressed tar of the scenario's folder; unpack it after the last piece."""
        self._archive.append(base64.b64decode(chunk))
        if not last:
            return
        data = zlib.decompress(b"".join(self._archive))
        self._archive = []
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(self.folder)
        if os.geteuid() == 0:
            uid, gid = self.options["uid"], self.options["gid"]
            for path in (self.home, *(str(p) for p in pathlib.Path(self.home).rglob("*"))):
                os.chown(path, uid, gid, follow_symlinks=False)

    def prepare(self, workers: list[dict[str, Any]], master: dict[str, Any] | None) -> None:
        """Start the store, if it is this node's, and every worker, waiting at its gate.

        Raises:
            StoreError: the store cannot listen.
        """
        uid, gid = self.options["uid"], self.options["gid"]
        if master is not None:
            self.store_pid = store.start_store(master["address"], master["port"], master["world_size"], uid, gid)
        context = launch.LaunchContext(
            folder=self.folder,
            note_socket=self._note_path,
            uid=uid,
            gid=gid,
            cold=self.options["cold"],
            import_root=self.options["import_root"],
            trace=self.options.get("trace"),
        )
        for description in workers:
            description["env"].update(self._own_variables())
            self.workers[description["rank"]] = launch.start_worker(description, context)

    def check(self, reference: str, results: list[dict[str, Any]], environment: dict[str, str]) -> None:
        """Start the scenario's own check of the results as one more worker, rank -1."""
        path = os.path.join(self.home, "results.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file)
        environment = {**environment, check.RESULTS_VARIABLE: path}
        argv = [reference.partition(":")[0], reference]
        description = {"rank": -1, "local_rank": -1, "env": environment, "argv": argv, "script": check.__file__}
        self.prepare([description], None)
        self.workers[-1].open_gate()

    def _own_variables(self) -> dict[str, str]:
        own = {note.SOCKET_VARIABLE: self._note_path}
        if self.options["container"]:
            own["HOME"] = os.path.join(self.home, "home")
        else:
            own["TMPDIR"] = os.path.join(self.home, "tmp")
        return own

    def go(self) -> None:
        """Open every worker's gate."""
        self.going = True
        for worker in self.workers.values():
            worker.open_gate()
            self.emit({"ev": "started", "rank": worker.rank, "pid": worker.pid, "time": worker.started})

    # -- while it runs

    def descriptors(self) -> list[int]:
        """Everything that may become readable because of this run."""
        fds = [fd for worker in self.workers.values() for fd in worker.streams]
        return [self.notes.fileno(), *fds]

    def read(self, fd: int) -> None:
        """Pass on what can be read from a descriptor."""
        if fd == self.notes.fileno():
            self._read_notes()
            return
        for worker in self.workers.values():
            if fd in worker.streams:
                self._read_stream(worker, fd)
                return

    def _read_stream(self, worker: launch.Worker, fd: int) -> int:
        try:
            chunk = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not chunk:
            os.close(fd)
            del worker.streams[fd]
            return 0
        message = {"ev": "output", "rank": worker.rank, "stream": worker.streams[fd], "time": time.time()}
        self.emit({**message, **wire.pack_bytes(chunk)})
        return len(chunk)

    def _read_all(self, worker: launch.Worker) -> None:
        """Pass on what is in a worker's pipes now; a process that outlives it may go on filling them."""
        for fd in list(worker.streams):
            left = processes.readable_bytes(fd)
            while left > 0 and (got := self._read_stream(worker, fd)):
                left -= got

    def send_traces(self, congested: Callable[[], bool] = lambda: False) -> bool:
        """Pass on what the recorders have written, whole lines, as long as what is sent gets through.

        Returns:
            Whether something was left.
        """
        for worker in self.workers.values():
            if worker.trace is None:
                continue
            for chunk in worker.trace.chunks(ended=worker.status is not None):
                self.emit({"ev": "trace", "rank": worker.rank, **wire.pack_bytes(chunk)})
                if congested():
                    return True
        return False

    def _read_notes(self) -> None:
        while True:
            try:
                message = json.loads(self.notes.recv(_NOTE_BYTES))
            except BlockingIOError:
                return
            except (ValueError, RecursionError):
                continue  # not from `note`
            if not isinstance(message, dict) or message.get("rank") not in self.workers:
                continue
            worker = self.workers[message["rank"]]
            if message.get("kind") == "error":
                worker.error = message
            elif message.get("kind") == "imported":
                self.imported.update(name for name in message.get("names", ()) if isinstance(name, str))
            elif message.get("kind") == "note":
                self.emit({"ev": "note", **{key: message[key] for key in ("rank", "name", "value", "time")}})

    def reap(self) -> None:
        """Report every worker that has ended, after everything that it had printed."""
        for worker in self.workers.values():
            if worker.status is not None:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if not pid:
                continue
            ended = time.time()
            worker.status = status
            self._read_notes()
            self._read_all(worker)
            worker.read_stack()
            self.emit(self._exit_message(worker, ended))

    def _exit_message(self, worker: launch.Worker, ended: float) -> dict[str, Any]:
        status = worker.status or 0
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        kills = processes.oom_kills()
        out_of_memory = killed_by == signal.SIGKILL and not worker.stopped and kills > self._oom_kills
        if out_of_memory:
            self._oom_kills += 1
        error = worker.error or {}
        return {
            "ev": "exit",
            "rank": worker.rank,
            "code": None if killed_by else os.WEXITSTATUS(status),
            "signal": _signal_name(killed_by),
            "out_of_memory": out_of_memory or bool(error.get("out_of_memory")),
            "stopped": worker.stopped,
            "error": error.get("error", ""),
            "traceback": error.get("traceback", ""),
            "error_time": error.get("time"),
            "stack": worker.stack.decode("utf-8", "replace") if killed_by else "",
            "time": ended,
        }

    def watch_memory(self) -> None:
        """Do what the kernel does for a container: kill the largest worker when the node is over its limit."""
        limit = self.options.get("memory_bytes")
        if not limit or not self.going:
            return
        pids = processes.descendants(os.getpid())
        if processes.resident_bytes(pids) < limit:
            return
        sizes = processes.memory_bytes(pids)
        if sum(sizes.values()) < limit:
            return
        running = {worker.pid: worker for worker in self.workers.values() if worker.status is None}
        victim = max((pid for pid in sizes if pid in running), key=sizes.__getitem__, default=None)
        if victim is not None:
            running[victim].error = {"out_of_memory": True}
            running[victim].signal(signal.SIGKILL)

    @property
    def running(self) -> bool:
        """Whether a worker has not ended."""
        return any(worker.status is None for worker in self.workers.values())

    # -- its end

    def stop(self, number: int) -> None:
        """Send a signal to every worker that still runs, and to the processes of its session."""
        for worker in self.workers.values():
            if worker.status is None:
                worker.stopped = True
                try:
                    os.killpg(worker.pid, number)
                except ProcessLookupError:
                    worker.signal(number)

    def request_stacks(self) -> None:
        """Have every running worker write its Python stack."""
        from .worker import STACK_SIGNAL

        for worker in self.workers.values():
            worker.read_stack()
            worker.stack = b""
            if worker.status is None:
                worker.signal(STACK_SIGNAL)

    def report_stacks(self) -> None:
        """Send what the workers wrote."""
        for worker in self.workers.values():
            worker.read_stack()
            if worker.status is None:
                text = worker.stack.decode("utf-8", "replace")
                self.emit({"ev": "stack", "rank": worker.rank, "text": text, "time": time.time()})

    def clean(
        self, congested: Callable[[], bool] = lambda: False, drain: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Leave nothing: end every process, pass on their last words, remove every file.

        Args:
            congested: whether much waits to be sent.
            drain: waits until less does.

        Returns:
            `processes`: how many outlived their workers.
        """
        self.stop(signal.SIGKILL)
        keep = {self.store_pid} if self.store_pid else set()
        keep.update(worker.pid for worker in self.workers.values() if worker.status is None)
        outlived = processes.kill_descendants(keep) if self.workers else 0
        deadline = time.monotonic() + 2.0
        while self.running and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.0005)
        if self.store_pid:
            os.kill(self.store_pid, signal.SIGKILL)
            os.waitpid(self.store_pid, 0)
            self.store_pid = None
        for worker in self.workers.values():
            self._read_all(worker)
        while self.send_traces(congested):
            drain()
        for worker in self.workers.values():
            worker.close()
        self.notes.close()
        self.workers = {}
        shutil.rmtree(self.home, ignore_errors=True)
        for path in _listing() - self._stray if self.options["container"] else ():
            _remove(path)
        return {"processes": outlived}


def _signal_name(number: int) -> str | None:
    """Name of a signal, `SIGRTMIN+3` among them; None for 0."""
    if not number:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _listing() -> set[str]:
    found: set[str] = set()
    for folder in _STRAY_FOLDERS:
        if os.path.isdir(folder):
            found.update(os.path.join(folder, name) for name in os.listdir(folder))
    return found


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            os.unlink(path)
        except OSError:
            print(f"cannot remove {path}", file=sys.stderr)
