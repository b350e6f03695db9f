"""The server of the page: who may see it, what is pushed, and that no browser holds up the run."""

from __future__ import annotations

import html
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lab.features.watch import server as subject
from lab.features.watch.now import Follower, Watched
from lab.features.watch.server import Server, page_of
from tests.features.watch.growing import ORIGIN, Growing

DEADLINE_S = 20.0


class Lecture:
    """A run that is shown on a page."""

    def __init__(self, folder: Path) -> None:
        self.run = Growing(folder)
        self.watched = Watched(step=True)
        self.follower = Follower(self.run.record)
        self.server = Server(page_of("x"), stepper=self.watched, report=lambda: self.report)
        self.report: bytes | None = None

    def look(self) -> None:
        self.run.write()
        self.server.show(self.follower.poll(ORIGIN + 1)[0], self.follower)

    def ask(self, place: str = "", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        address = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=DEADLINE_S)
        path = place if place.startswith("/") else address.path + place
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse()

    def events(self, **headers: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """What is pushed: its number and its data."""
        number = 0
        for line in self.ask("events", **headers):
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                yield number, json.loads(line[6:])


@pytest.fixture
def lecture(tmp_path: Path) -> Iterator[Lecture]:
    made = Lecture(tmp_path / "run")
    yield made
    made.server.stop()
    made.run.end()


def test_only_this_machine_can_reach_it_unless_somebody_says_otherwise(lecture: Lecture) -> None:
    assert lecture.server.url.startswith("http://127.0.0.1:")
    assert lecture.server.private
    open_to_all = Server(b"", host="0.0.0.0")
    try:
        assert not open_to_all.private
    finally:
        open_to_all.stop()


@pytest.mark.parametrize("place", ["", "events", "report", "step"])
def test_who_does_not_know_the_token_sees_nothing(lecture: Lecture, place: str) -> None:
    for token in ("", "x", "../", lecture.server.token[:-1], lecture.server.token.swapcase()):
        answer = lecture.ask(f"/{token}/{place}")
        assert (answer.status, answer.read()) == (404, b"")
    assert lecture.ask(f"/x/{place}", "POST").status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:{port}", 200), ("localhost:{port}", 200), ("[::1]:{port}", 200), ("evil.example:{port}", 404),
     ("127.0.0.1", 404), ("127.0.0.1:1", 404), ("10.1.2.3:{port}", 404), ("", 404), ("127.0.0.1:x", 404), ("[", 404)],
)  # fmt: skip
def test_it_answers_to_the_names_of_this_machine_only(lecture: Lecture, host: str, status: int) -> None:
    assert lecture.ask(Host=host.format(port=lecture.server.port)).status == status


def test_the_page_keeps_others_out_and_its_address_in(lecture: Lecture) -> None:
    answer = lecture.ask()
    headers = dict(answer.getheaders())
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    page = html.unescape(answer.read().decode())
    assert "default-src 'none'" in page
    assert "connect-src 'self'" in page
    assert lecture.server.token not in page


def test_another_page_cannot_press_the_button(lecture: Lecture) -> None:
    own = f"http://127.0.0.1:{lecture.server.port}"
    assert lecture.ask("step", "POST", Origin="http://evil.example").status == 403
    assert lecture.ask("step", "POST", Origin="null").status == 403
    assert lecture.ask("step").status == 404
    assert lecture.watched.collect_released() == {}
    assert lecture.ask("run-on", "POST", Origin=own).status == 204
    assert lecture.watched.collect_released() != {}


def test_where_nobody_is_held_there_is_no_button() -> None:
    server = Server(b"")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
        connection.request("POST", f"/{server.token}/step")
        assert connection.getresponse().status == 404
    finally:
        server.stop()


def test_the_whole_state_is_pushed_to_who_comes_late_and_only_new_lines_to_who_comes_back(lecture: Lecture) -> None:
    lecture.run.prints(0, b"one\ntwo\n", 5)
    lecture.look()
    events = lecture.events()
    number, first = next(events)
    assert first["state"]["ranks"][2]["state"] == "outside"
    assert [line["text"] for line in first["lines"]] == ["one", "two"]
    lecture.run.prints(1, b"three\n", 6)
    lecture.look()
    number, second = next(events)
    assert [line["text"] for line in second["lines"]] == ["three"]
    back = next(lecture.events(Last_Event_ID=str(number)))[1]
    assert back["lines"] == []
    assert back["state"] == second["state"]
    assert back["left_out"] == 0


def test_lines_that_nobody_kept_are_counted(lecture: Lecture) -> None:
    lecture.run.prints(0, b"".join(b"%d\n" % number for number in range(1000)), 5)
    lecture.look()
    told = next(lecture.events(Last_Event_ID="10"))[1]
    assert (told["left_out"], len(told["lines"]), told["lines"][-1]["text"]) == (590, 400, "999")


@pytest.mark.parametrize("number", ["-1", "x", "9" * 30, "²"])
def test_a_number_that_is_none_is_the_beginning(lecture: Lecture, number: str) -> None:
    lecture.run.prints(0, b"one\n", 5)
    lecture.look()
    headers = {"Last_Event_ID": number.encode().decode("latin-1")}
    assert len(next(lecture.events(**headers))[1]["lines"]) == 1


def test_at_the_end_everybody_is_told_and_let_go(lecture: Lecture) -> None:
    lecture.look()
    events = lecture.events()
    assert not next(events)[1]["done"]
    lecture.run.end("failed", "rank 1 did it")
    lecture.look()
    lecture.look()
    lecture.server.close()
    told = [data for _, data in events]
    assert told[-1]["done"]
    assert told[-1]["state"]["reason"] == "rank 1 did it"
    lecture.server.wait_until_delivered(DEADLINE_S)
    assert lecture.server.browsers == 0


def test_a_browser_that_takes_nothing_holds_nobody_up(lecture: Lecture) -> None:
    address = urlsplit(lecture.server.url)
    slow = socket.create_connection((address.hostname, address.port), timeout=DEADLINE_S)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(f"GET {address.path}events HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n".encode())
    lecture.look()
    events = lecture.events()
    next(events)
    for number in range(200):
        lecture.run.prints(0, b"x" * 1500 + b"\n", number)
        lecture.look()
    assert any(data["lines"] and data["lines"][-1]["n"] == 200 for _, data in events)
    slow.close()


def test_more_browsers_than_there_is_room_for_are_refused(lecture: Lecture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_MOST_BROWSERS", 1)
    lecture.look()
    events = lecture.events()
    next(events)
    assert lecture.ask("events").status == 503


def test_the_report_is_there_when_the_run_is_over(lecture: Lecture) -> None:
    assert lecture.ask("report").status == 404
    lecture.report = b"<p>report"
    assert lecture.ask("report").read() == b"<p>report"


def test_what_is_no_http_ends_nothing(lecture: Lecture) -> None:
    for data in (b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n", b"GET //x HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", lecture.server.port), timeout=DEADLINE_S) as odd:
            odd.sendall(data)
            odd.shutdown(socket.SHUT_WR)
            while odd.recv(4096):
                pass
    assert lecture.ask().status == 200
    assert threading.active_count() < 20
