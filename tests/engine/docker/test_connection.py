"""Requests to the engine's socket without docker-py, against a server that only answers."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from lab.engine.docker.connection import Connection, Refused, unix_socket
from lab.engine.docker.engine import DockerEngine
from lab.engine.protocol import NodeState
from lab.errors import EngineUnavailable, NodeLost
from lab.plan.cluster import ClusterInfo, Node, Shape
from tests.golden import golden

NODE = Node(name="node0", node_rank=0, handle="abc", address="")
INFO = ClusterInfo(name="c", engine="docker", shape=Shape(nodes=1), nodes=(NODE,), owner="me@here")


class Server:
    """Answers each request with what `answers` has for its path, and ends the connection."""

    def __init__(self, path: str) -> None:
        self.answers: dict[str, tuple[int, object]] = {"/_ping": (200, "OK")}
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                request = b""
                while not request.endswith(b"\r\n\r\n"):
                    request += connection.recv(1024)
                self.asked.append(request.decode().split("\r\n")[0].removesuffix(" HTTP/1.0"))
                status, body = self.answers.get(urlsplit(self.asked[-1].split()[1]).path, (0, b""))
                if status:
                    content = body if isinstance(body, bytes) else json.dumps(body).encode()
                    connection.sendall(f"HTTP/1.1 {status} Said\r\nServer: test\r\n\r\n".encode() + content)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    path = str(tmp_path / "s.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    server = Server(path)
    yield server
    server.close()


def test_containers_are_found_by_their_labels(server: Server):
    server.answers["/containers/json"] = (200, [{"Id": "abc"}])
    assert Connection().containers(["a=1", "b"]) == [{"Id": "abc"}]
    verb, target = server.asked[-1].split()
    query = parse_qs(urlsplit(target).query)
    assert (verb, query["all"], json.loads(query["filters"][0])) == ("GET", ["1"], {"label": ["a=1", "b"]})


def test_what_the_first_process_says_is_read_from_its_first_byte_on(server: Server):
    server.answers["/containers/abc/attach"] = (200, b"\1\0\0\0\0\0\0\5hello")
    (channel,) = DockerEngine().connect(INFO, [NODE])
    heard = b""
    while (chunk := channel.receive()) != b"":
        heard += chunk or b""
    channel.close()
    assert heard == b"hello"
    assert server.asked[-1] == "POST /containers/abc/attach?stdin=1&stdout=1&stderr=1&stream=1"


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (200, {"Status": "exited", "Running": False, "ExitCode": 137, "OOMKilled": True}, ("exit", 137)),
        (200, {"Status": "removing", "Running": True, "ExitCode": 0, "OOMKilled": False}, ("gone", None)),
        (404, None, ("gone", None)),
    ],
)
def test_what_became_of_a_node(server: Server, status: int, body: object, state: tuple[str, int | None]):
    server.answers["/containers/abc/json"] = (status, {"State": body} if body else {"message": "no such container"})
    expected = {"gone": NodeState(running=False, gone=True)}
    expected["exit"] = NodeState(running=False, exit_code=137, out_of_memory=True)
    assert DockerEngine().node_state(NODE) == expected[state[0]]


def test_a_refusal_keeps_the_words_of_the_engine(server: Server):
    server.answers["/containers/abc/attach"] = (409, {"message": "container abc is paused"})
    with pytest.raises(NodeLost, match=golden(1)):
        DockerEngine().connect(INFO, [NODE])
    server.answers["/containers/abc/json"] = (500, b"not JSON at all")
    with pytest.raises(Refused, match=golden(2)):
        DockerEngine().node_state(NODE)


@pytest.mark.parametrize("use", [lambda c: c.containers([]), lambda c: c.inspect("abc"), lambda c: c.attach("abc")])
def test_an_engine_that_closes_without_an_answer_is_unavailable(server: Server, use: Callable[[Connection], object]):
    connection = Connection()
    server.answers.clear()
    with pytest.raises(EngineUnavailable, match=golden(1)):
        use(connection)


def test_a_socket_that_does_not_exist_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineUnavailable, match=golden(1)) as caught:
        DockerEngine()
    assert "--engine local" in caught.value.hint


def test_looking_for_a_cluster_imports_neither_docker_py_nor_an_http_client(server: Server):
    server.answers["/containers/json"] = (200, [])
    code = (
        "import sys; from lab.engine.docker.engine import DockerEngine; assert DockerEngine().find('c') == []; "
        "print({'docker', 'requests', 'urllib3', 'http.client'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize(
    ("host", "config", "found"),
    [
        (None, None, "/var/run/docker.sock"),
        (None, {}, "/var/run/docker.sock"),
        (None, {"currentContext": "default"}, "/var/run/docker.sock"),
        (None, {"currentContext": "elsewhere"}, None),
        (None, [], None),
        ("unix:///run/mine.sock", {"currentContext": "elsewhere"}, "/run/mine.sock"),
        ("tcp://far:2376", None, None),
        ("ssh://far", None, None),
    ],
)
def test_only_an_engine_behind_a_socket_of_this_machine_is_asked_without_docker_py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str | None, config: object, found: str | None
):
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", host) if host else monkeypatch.delenv("DOCKER_HOST", raising=False)
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert unix_socket() == found


def test_an_engine_of_another_context_is_asked_at_its_own_socket(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    host = os.environ["DOCKER_HOST"]
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"currentContext": "mine"}')
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"mine").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": "mine", "Metadata": {}, "Endpoints": {"docker": {"Host": host}}}))
    server.answers["/version"] = (200, {"ApiVersion": "1.41"})
    server.answers["/containers/abc/attach"] = (200, b"\1\0\0\0\0\0\0\5hello")
    (stream,) = Connection().attach("abc")
    with stream, stream.makefile("rb") as received:
        assert received.read().endswith(b"hello")


def test_a_filter_may_hold_any_letter(server: Server):
    server.answers["/containers/json"] = (200, [])
    Connection().containers(["owner=jörg & söhne@host#1"])
    query = parse_qs(urlsplit(server.asked[-1].split()[1]).query)
    assert json.loads(query["filters"][0]) == {"label": ["owner=jörg & söhne@host#1"]}
