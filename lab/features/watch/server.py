"""A server that shows the page of a run in browsers, and pushes news to each."""

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

from lab.features.html import REPORT, write
from lab.features.html.page import write_report
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.features.timeline.svg import operation_tones, rank_colour
from lab.features.watch.now import LOOPBACK, Follower, Line, Now, Watched, group_ranks
from lab.operations import get_operation
from lab.record.read import Record
from lab.record.record_files import read_file
from lab.report.sanitize import sanitize_json
from lab.report.style import VERDICTS
from lab.trace.steps import Step
from lab.words import clip_end, name_nodes, name_ranks

_SHOWN_S = 0.4
"""Seconds that a picture stays at least, so that people can follow."""
_LONGEST = 300
_MOST_REPORT_BYTES = 256 << 20
_WAITED_S = 0.5
"""A step in which ranks have waited this long takes precedence over completed steps."""


def state_of(now: Now) -> dict[str, Any]:
    """Return the state of a run except lines and pictures; ranks in the same state are shown as one."""
    size, groups = len(now.ranks), group_ranks(now.ranks)
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
    """Chooses the most interesting steps, and draws each once."""

    def __init__(self) -> None:
        self.drawn: dict[str, dict[str, Any]] = {}
        """`current` and `next`: title, location, and picture of a step; absent if there is none."""
        self.version = 0
        self._keys: Mapping[str, object] = {}
        self._changed = 0.0

    def update(self, now: Now, follower: Follower) -> None:
        """Draw what has changed, unless the shown pictures are too new."""
        chosen = {"current": _choose_current(follower, now)}
        if now.stepping and not now.over:
            released = [step for step in follower.ahead if step.title in now.next_steps]
            chosen["next"] = next(iter([*released, *follower.ahead]), None)
        keys = {name: _picture_key(step) for name, step in chosen.items()} | {"title": now.next, "over": now.over}
        clock = time.monotonic()
        if keys == self._keys or (clock - self._changed < _SHOWN_S and not now.stepping and not now.over):
            return
        self._keys, self._changed = keys, clock
        self.drawn = {name: _draw_step(step, len(now.ranks), now) for name, step in chosen.items() if step is not None}
        if "next" in self.drawn and now.next_steps:
            self.drawn["next"]["title"] = now.next
        self.version += 1


def _choose_current(follower: Follower, now: Now) -> Step | None:
    """Return a step that ranks wait in, or waited in to the end; otherwise the last completed one."""
    open_steps = [step for step in follower.steps if step.end is None]
    if now.over and open_steps:
        return open_steps[0]
    waiting = {rank.rank for rank in now.ranks if rank.waits_for and (rank.since_s or 0.0) >= _WAITED_S}
    for step in reversed(open_steps):
        if any(rank in waiting and call.state == "unfinished" for rank, call in step.calls.items()):
            return step
    over = [step for step in follower.steps if step.end is not None]
    return max(over, key=lambda step: step.end or 0.0, default=open_steps[-1] if open_steps else None)


def _picture_key(step: Step | None) -> object:
    """Return a key that changes when the picture changes."""
    return None if step is None else tuple(sorted((call.rank, call.index, call.state) for call in step.calls.values()))


def _draw_step(step: Step, world_size: int, now: Now) -> dict[str, Any]:
    picture = picture_of(step, world_size=world_size, live=not now.over)
    location = clip_end(picture.first.source, _LONGEST)
    return {"title": clip_end(step.title, _LONGEST), "place": location, "svg": svg_of(picture, heading=False)}


def page_of(title: str) -> bytes:
    """Render the page of a run; the title applies until the run reports its name."""
    return write.render_page("watch", "watch", {}, title=title)


def report_of(path: Callable[[], Path | None]) -> Callable[[], bytes | None]:
    """Return a function that returns the report of a record's run, once there is a result.

    The report is written again: a page that came with a record may run scripts of strangers.
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
"""A browser that reads nothing for this long is disconnected; it reconnects when it can."""
_NOTHING, _OWN_POLICY = "default-src 'none'", "frame-ancestors 'none'"
"""Pages define the rest themselves."""
_GUARDS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_BEAT_S = 5.0
"""Seconds between messages, so that a closed connection is noticed."""


class Server:
    """Shows a run on a page.

    Args:
        page: The page.
        host: The address to listen at.
        port: 0 for any free port.
        stepper: Releases held ranks.
        report: Returns the report of the run once it is over; None before.
    """

    def __init__(
        self,
        page: bytes,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        stepper: Watched | None = None,
        report: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.page, self.stepper, self.report, self.requested_host = page, stepper, report, host
        self.token = secrets.token_urlsafe(16)
        """Part of every address, so that only people who know it can see the run."""
        self.browsers = 0
        """Number of connected browsers."""
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
        """The address of the page."""
        host = LOOPBACK if ipaddress.ip_address(self.host).is_unspecified else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{self.token}/"

    @property
    def private(self) -> bool:
        """Whether only this machine can reach the page."""
        return ipaddress.ip_address(self.host).is_loopback

    # -- state

    def show(self, now: Now, follower: Follower) -> None:
        """Push the state to every browser."""
        self._pictures.update(now, follower)
        with self._changed:
            self._state, self._lines = state_of(now), list(follower.lines)
            self._version += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Stop pushing; browsers that connect later still get the last state."""
        with self._changed:
            self._done = True
            self._version += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the server."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def wait_until_delivered(self, seconds: float) -> None:
        """Wait until every connected browser has received the end, or until the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.browsers == 0, seconds)

    # -- one browser

    @contextmanager
    def reserve_slot(self) -> Iterator[bool]:
        """Reserve a slot for a browser while it is connected; yield False if all slots are in use."""
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
        """Push everything to a browser that has the lines up to this number, until the run is over."""
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
            new_lines = [one._asdict() for one in lines if one.n > line]
            data: dict[str, Any] = {"state": state, "done": done, "lines": new_lines}
            if lines:
                data["left_out"] = max(0, lines[0].n - 1 - line)
                line = lines[-1].n
            if pictures is not None:
                data["pictures"] = pictures
            send(f"id: {line}\ndata: {sanitize_json(data)}\n\n".encode())
            if done:
                return


class _Http(ThreadingTCPServer):
    """A server without a look-up of this machine's name, which `http.server` makes."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, shown: Server, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in shown.requested_host else socket.AF_INET
        super().__init__((shown.requested_host, port), type("Handler", (_Handler,), {"shown": shown}))

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing about a request that is no HTTP: the terminal belongs to the run."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    shown: Server
    timeout = _PATIENCE_S
    server_version, sys_version = "lab", ""

    def do_GET(self) -> None:
        """Answer with a page, or push events to it."""
        if (route := self._parse_route()) == "events":
            self._push_events()
        elif route is not None:
            pages = {"": lambda: self.shown.page, "report": self.shown.report}
            page = pages[route]() if route in pages else b""
            if page:
                self._answer(200, page, _OWN_POLICY)
            else:
                self._answer(404, b"The run is not over yet." if page is None else b"")

    def do_POST(self) -> None:
        """Handle a button press."""
        route, stepper = self._parse_route(), self.shown.stepper
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            self._answer(403, b"")
        elif route in ("step", "run-on") and stepper is not None:
            stepper.press() if route == "step" else stepper.run_on()
            self._answer(204, b"")
        elif route is not None:
            self._answer(404, b"")

    def _parse_route(self) -> str | None:
        """Return the path behind the token; answer an unauthorized request, and return None."""
        _, token, *rest = [*urlsplit(self.path).path.split("/"), ""][:4]
        is_valid = hmac.compare_digest(token.encode(), self.shown.token.encode())
        if is_valid and len(rest) > 1 and self._is_own_name(self.headers.get("Host", "")):
            return rest[0]
        self._answer(404, b"")
        return None

    def _is_own_name(self, host: str) -> bool:
        """Return whether the browser used a name of this machine that no other page can have forged."""
        name, port = "", None
        with suppress(ValueError):
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        if port != self.shown.port:
            return False
        with suppress(ValueError):
            return ipaddress.ip_address(name).is_loopback or self.shown.host != LOOPBACK
        return name in ("localhost", self.shown.requested_host)

    def _push_events(self) -> None:
        last = self.headers.get("Last-Event-ID", "")
        with self.shown.reserve_slot() as is_free:
            if not is_free:
                self._answer(503, b"Too many browsers are watching already.")
                return
            self.close_connection = True
            with suppress(OSError):  # the browser has gone, or reads nothing
                self._begin_answer(200, "text/event-stream", _NOTHING)
                self.shown.push_to(self.wfile.write, int(last) if last.isdecimal() and len(last) < 16 else 0)

    def _answer(self, code: int, body: bytes, policy: str = _NOTHING) -> None:
        try:
            self._begin_answer(code, "text/html", policy, len(body))
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def _begin_answer(self, code: int, kind: str, policy: str, size: int | None = None) -> None:
        """Send status and headers, among them those that isolate the page and protect the token."""
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if size is not None:
            self.send_header("Content-Length", str(size))
        for name, value in {"Content-Security-Policy": policy, **_GUARDS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Log nothing: the terminal belongs to the run."""
