"""Serves the page of a run to browsers, and pushes to each what is new."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

from lab.features.html import REPORT
from lab.features.html import write as bundle
from lab.features.html.page import write_report
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.features.timeline.svg import operation_tones, rank_colour
from lab.features.watch.now import LOOPBACK, Follower, Line, Now, Watched, alike_ranks
from lab.operations import get_operation
from lab.record.read import Record
from lab.record.record_files import read_file
from lab.report.sanitize import sanitize_json
from lab.report.style import VERDICTS
from lab.trace.steps import Step
from lab.words import clip_end, name_nodes, name_ranks

_SHOWN_S = 0.4
"""A picture stays for so long, so that eyes can follow."""
_LONGEST = 300
_MOST_REPORT_BYTES = 256 << 20
_WAITED_S = 0.5
"""A step in which ranks have waited for so long is shown before those that are over."""


def state_of(now: Now) -> dict[str, Any]:
    """What the page shows of a run, besides lines and pictures; many ranks that do the same are shown as one."""
    size, groups = len(now.ranks), alike_ranks(now.ranks)
    data = asdict(replace(now, ranks=tuple(max(ranks, key=lambda rank: rank.since_s or 0.0) for ranks in groups)))
    for rank, ranks in zip(data["ranks"], groups, strict=True):
        rank["name"], rank["node"] = name_ranks(one.rank for one in ranks), name_nodes(one.node for one in ranks)
        rank["colour"] = rank_colour(rank["rank"], size)
    tone = VERDICTS.get(now.verdict)
    data["sign"], data["tone"] = (tone.sign, tone.variable) if tone else ("", "")
    ops = sorted({call["op"] for rank in data["ranks"] for call in rank["recent"]})
    data["colours"] = {op: operation_tones(get_operation(op)) for op in ops}
    return data


class Pictures:
    """Chooses the steps that are worth seeing now, and draws each once."""

    def __init__(self) -> None:
        self.drawn: dict[str, dict[str, Any]] = {}
        """`current` and `next`: title, place and picture of a step; absent where there is none."""
        self.version = 0
        self._keys: Mapping[str, object] = {}
        self._changed = 0.0

    def look(self, now: Now, follower: Follower) -> None:
        """Draw what has changed, if what is shown has been there for a moment."""
        chosen = {"current": _current(follower, now)}
        if now.stepping and not now.over:
            going = [step for step in follower.ahead if step.title in now.next_steps]
            chosen["next"] = next(iter([*going, *follower.ahead]), None)
        keys = {name: _key(step) for name, step in chosen.items()} | {"title": now.next, "over": now.over}
        clock = time.monotonic()
        soon = clock - self._changed < _SHOWN_S and not now.stepping and not now.over
        if keys == self._keys or soon:
            return
        self._keys, self._changed = keys, clock
        self.drawn = {name: _drawn(step, len(now.ranks), now) for name, step in chosen.items() if step is not None}
        if "next" in self.drawn and now.next_steps:
            self.drawn["next"]["title"] = now.next
        self.version += 1


def _current(follower: Follower, now: Now) -> Step | None:
    """A step that ranks wait in, or waited in to the end; else the last one that is over."""
    open_steps = [step for step in follower.steps if step.end is None]
    if now.over and open_steps:
        return open_steps[0]
    waiting = {rank.rank for rank in now.ranks if rank.waits_for and (rank.since_s or 0.0) >= _WAITED_S}
    for step in reversed(open_steps):
        if any(rank in waiting and call.state == "unfinished" for rank, call in step.calls.items()):
            return step
    over = [step for step in follower.steps if step.end is not None]
    return max(over, key=lambda step: step.end or 0.0, default=open_steps[-1] if open_steps else None)


def _key(step: Step | None) -> object:
    """Tells whether a picture would be another one."""
    if step is None:
        return None
    return tuple(sorted((call.rank, call.index, call.state) for call in step.calls.values()))


def _drawn(step: Step, world_size: int, now: Now) -> dict[str, Any]:
    picture = picture_of(step, world_size=world_size, live=not now.over)
    place = clip_end(picture.first.source, _LONGEST)
    return {"title": clip_end(step.title, _LONGEST), "place": place, "svg": svg_of(picture, heading=False)}


def page_of(title: str) -> bytes:
    """The page of a run that is called so until it says its name itself."""
    return bundle.render_page("watch", "watch", {}, title=title, colours={})


def report_of(path: Callable[[], Path | None]) -> Callable[[], bytes | None]:
    """Gives the report of the run with this record, once there is a result.

    It is written anew: a page that came with a record may run scripts of whoever made it.
    """
    lock, written = threading.Lock(), set[Path]()

    def report() -> bytes | None:
        folder = path()
        if folder is None or not (record := Record(path=folder)).complete:
            return None
        with lock:
            if folder not in written:
                write_report(record)
                written.add(folder)
            return read_file(folder, REPORT, _MOST_REPORT_BYTES)

    return report


_MOST_BROWSERS = 64
_PATIENCE_S = 20.0
"""A browser that takes nothing for so long is left to itself; it comes back when it can."""
_NOTHING, _OWN_POLICY = "default-src 'none'", "frame-ancestors 'none'"
"""Pages say the rest themselves."""
_GUARDS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_BEAT_S = 5.0
"""So often something is sent, so that one that has gone is noticed."""


class Server:
    """Shows a run on a page.

    Args:
        page: the page.
        host: the address to listen at.
        port: 0: any that is free.
        stepper: lets ranks go on where they are held.
        report: the report of the run once it is over; None before.
    """

    def __init__(
        self,
        page: bytes,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        stepper: Watched | None = None,
        report: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.page, self.stepper, self.report, self.asked = page, stepper, report, host
        self.token = secrets.token_urlsafe(16)
        """Part of every address: who does not know it sees nothing."""
        self.browsers = 0
        """How many are listening now."""
        self._changed = threading.Condition()
        self._pictures = Pictures()
        self._state: dict[str, Any] = {}
        self._lines: list[Line] = []
        self._version = 0
        self._done = self._closed = False
        self._http = _Http(self, port)
        self.host, self.port = str(self._http.server_address[0]), int(self._http.server_address[1])
        threading.Thread(target=self._http.serve_forever, args=(0.1,), name="web", daemon=True).start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host = LOOPBACK if ipaddress.ip_address(self.host).is_unspecified else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{self.token}/"

    @property
    def private(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    # -- what is shown

    def show(self, now: Now, follower: Follower) -> None:
        """Push it to every browser."""
        self._pictures.look(now, follower)
        with self._changed:
            self._state, self._lines = state_of(now), list(follower.lines)
            self._version += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more comes; what came last is still there for who asks."""
        with self._changed:
            self._done = True
            self._version += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """End the server."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def wait_until_seen(self, seconds: float) -> None:
        """Return when every browser that listens has been told the end, or after so long."""
        with self._changed:
            self._changed.wait_for(lambda: self.browsers == 0, seconds)

    # -- one browser

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Room for one more browser, for as long as it listens; False where there is none."""
        with self._changed:
            is_free = self.browsers < _MOST_BROWSERS
            self.browsers += is_free
        try:
            yield is_free
        finally:
            with self._changed:
                self.browsers -= is_free
                self._changed.notify_all()

    def push_to(self, send: Callable[[bytes], object], line: int) -> None:
        """Send everything to a browser that has the lines up to this number, until the run is over."""
        version, drawn = 0, -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._version > version or self._closed, _BEAT_S)  # noqa: B023
                if self._closed:
                    return
                new = self._version > version
                version, done, lines, state = self._version, self._done, self._lines, self._state
                pictures = self._pictures.drawn if self._pictures.version != drawn else None
                drawn = self._pictures.version
            if not new:
                send(b": still there\n\n")
                continue
            fresh = [one._asdict() for one in lines if one.n > line]
            data: dict[str, Any] = {"state": state, "done": done, "lines": fresh}
            if lines:
                data["left_out"] = max(0, lines[0].n - 1 - line)
                line = lines[-1].n
            if pictures is not None:
                data["pictures"] = pictures
            send(f"id: {line}\ndata: {sanitize_json(data)}\n\n".encode())
            if done:
                return


class _Http(ThreadingTCPServer):
    """Listens; that of `http.server` would ask somebody for the name of this machine."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, shown: Server, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in shown.asked else socket.AF_INET
        super().__init__((shown.asked, port), type("Handler", (_Handler,), {"shown": shown}))


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    shown: Server
    timeout = _PATIENCE_S
    server_version, sys_version = "lab", ""

    def do_GET(self) -> None:
        """A page, or what is pushed to it."""
        place = self._place()
        if place == "events":
            self._push_events()
        elif place is not None:
            pages = {"": lambda: self.shown.page, "report": self.shown.report}
            page = pages[place]() if place in pages else b""
            if page:
                self._answer(200, page, _OWN_POLICY)
            else:
                self._answer(404, b"The run is not over yet." if page is None else b"")

    def do_POST(self) -> None:
        """A button was pressed."""
        place, stepper = self._place(), self.shown.stepper
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            self._answer(403, b"")
        elif place in ("step", "run-on") and stepper is not None:
            stepper.press() if place == "step" else stepper.run_on()
            self._answer(204, b"")
        elif place is not None:
            self._answer(404, b"")

    def _place(self) -> str | None:
        """What is asked for, behind the token; None where it was answered already: it is none of theirs."""
        _, token, *rest = [*urlsplit(self.path).path.split("/"), ""][:4]
        known = hmac.compare_digest(token.encode(), self.shown.token.encode())
        if known and len(rest) > 1 and self._is_own_name(self.headers.get("Host", "")):
            return rest[0]
        self._answer(404, b"")
        return None

    def _is_own_name(self, host: str) -> bool:
        """Whether a browser asked for this machine by a name that no other page can have made for it."""
        name, port = "", None
        with suppress(ValueError):
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        if port != self.shown.port:
            return False
        with suppress(ValueError):
            return ipaddress.ip_address(name).is_loopback or self.shown.host != LOOPBACK
        return name in ("localhost", self.shown.asked)

    def _push_events(self) -> None:
        last = self.headers.get("Last-Event-ID", "")
        with self.shown.place() as is_free:
            if not is_free:
                self._answer(503, b"Too many browsers are watching already.")
                return
            self.close_connection = True
            with suppress(OSError):  # the browser has gone, or takes nothing
                self._begin_answer(200, "text/event-stream", _NOTHING)
                self.shown.push_to(self.wfile.write, int(last) if last.isdecimal() and len(last) < 16 else 0)

    def _answer(self, code: int, body: bytes, policy: str = _NOTHING) -> None:
        try:
            self._begin_answer(code, "text/html", policy, len(body))
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def _begin_answer(self, code: int, kind: str, policy: str, size: int | None = None) -> None:
        """Its status and headers, among them those that keep other pages out, and the token in."""
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if size is not None:
            self.send_header("Content-Length", str(size))
        for name, value in {"Content-Security-Policy": policy, **_GUARDS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Nothing: the terminal belongs to the run."""
