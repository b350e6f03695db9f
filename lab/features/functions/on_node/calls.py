"""A rank that is called: it joins the process group, and takes one function after the other until its caller hangs up.

A function that raises ends its rank, as a script that raises does: the others are not to wait for it.
"""

from __future__ import annotations

import json
import linecache
import os
import pickle
import sys
import threading
from contextlib import suppress
from typing import Any

from ....node.lent import Lender, Lent
from ....node.messages.typed import read
from ....node.rank import called
from . import call as call_messages
from . import call_assertions, call_frames, call_values
from .call_frames import BEGIN, CALL, FAILURE, KEPT, MODULE, READY, VALUE, pack

_READ_BYTES = 1 << 18


class Caller:
    """The other end, seen from the rank."""

    def __init__(self, calls: int, answers: int) -> None:
        self._calls, self._answers = calls, answers
        self._pieces = call_frames.Pieces(1 << 62)  # the caller is trusted: it could run anything here
        self._waiting: list[tuple[bytes, bytes]] = []
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def next(self) -> tuple[bytes, bytes] | None:
        """What it says next; None once it has hung up."""
        while not self._waiting:
            chunk = os.read(self._calls, _READ_BYTES)
            if not chunk:
                return None
            self._waiting += self._pieces.feed(chunk)
        return self._waiting.pop(0)

    def await_call(self) -> tuple[bytes, bytes] | None:
        """As `next`, where nothing is under way; stacks tell the one from the other."""
        return self.next()

    def say(self, kind: bytes, body: bytes) -> None:
        """Tell it something."""
        view = memoryview(pack(kind, body))
        while view:
            view = view[os.write(self._answers, view) :]

    def lend(self, name: str) -> Lent | None:
        """Ask it for a module."""
        if os.getpid() != self._pid:
            return None  # a fork must not take what is said to its parent
        with self._lock:
            self.say(MODULE, _json(call_messages.Wanted(name)))
            others: list[tuple[bytes, bytes]] = []
            lent = None
            while lent is None and (said := self.next()) is not None:
                answer = read(Lent, json.loads(said[1])) if said[0] == MODULE else None
                if answer is not None and answer.name == name:
                    lent = answer
                else:  # sent before the caller was asked
                    others.append(said)
            self._waiting[:0] = others
        return lent if lent is not None and lent.files else None


def serve() -> None:
    """Take calls until the caller hangs up."""
    if called.ends is None:
        raise RuntimeError("nobody calls this process")
    from .call_surroundings import Surroundings

    import torch.distributed as dist  # which looks for modules that nobody has

    caller = Caller(*called.ends)
    lender = Lender(caller.lend)
    sys.meta_path.append(lender)

    surroundings: Surroundings | None = None
    while True:
        said = caller.await_call()
        if said is None:
            break
        kind, body = said
        if kind == BEGIN:
            begin = read(call_messages.Begin, json.loads(body))
            if begin.backend:
                dist.init_process_group(begin.backend)
            surroundings = Surroundings()
            caller.say(READY, _json(call_messages.Ready("{}.{}".format(*sys.version_info))))
        elif kind == MODULE:
            lender.keep(read(Lent, json.loads(body)))
        elif kind == CALL and surroundings is not None:
            _answer(caller, body, surroundings)
    with suppress(Exception):  # whatever it was, all calls were answered
        dist.destroy_process_group()


def _answer(caller: Caller, body: bytes, surroundings: Any) -> None:
    start = 8 + int.from_bytes(body[:8], "big")
    how = read(call_messages.How, json.loads(body[8:start]))
    try:
        for name, text in how.sources.items():
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        call_assertions.SETTINGS.update(how.assertions or {})
        function, arguments, named = pickle.loads(memoryview(body)[start:])  # noqa: S301 - from who may run anything here
        value = function(*arguments, **named, **_filled(how.filled))
    except BaseException as error:
        from .call_failures import describe

        _let_prints_arrive()
        caller.say(FAILURE, _json(describe(error, variables=how.variables)))
        raise
    written, kept = b"", ""
    try:
        written = call_values.write_value(value if how.wanted else None, call_frames.LIMIT_BYTES)
    except call_values.Unsendable as error:
        kept = str(error)
    del value, function, arguments, named
    _let_prints_arrive()
    groups, used_up = surroundings.groups, surroundings.renew()
    if kept:
        caller.say(KEPT, kept.encode("utf-8", "replace"))
    else:
        head = _json(call_messages.Answered(used_up, groups))
        caller.say(VALUE, len(head).to_bytes(8, "big") + head + written)


def _let_prints_arrive() -> None:
    """What it printed is heard before its answer."""
    from ....node.rank.worker import wait_until_read

    for stream, pipe in ((sys.stdout, 1), (sys.stderr, 2)):
        with suppress(Exception):  # what it put in their place is its own affair
            stream.flush()
            wait_until_read(pipe)


def _filled(names: list[str]) -> dict[str, Any]:
    import torch.distributed as dist

    known = {"rank": dist.get_rank, "world_size": dist.get_world_size, "group": lambda: dist.group.WORLD}
    return {name: known[name]() for name in names}


def _json(message: Any) -> bytes:
    return json.dumps(_plain(message), separators=(",", ":")).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
