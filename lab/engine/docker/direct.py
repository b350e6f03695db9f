"""The few requests of a run on a cluster that is up, spoken straight to the engine's Unix socket.

docker-py takes as long to import as such a run takes. It does all the rest, and these too where the engine is not
behind a Unix socket of this machine.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lab.errors import ClusterError

_SOCKET = "/var/run/docker.sock"
_PING_TIMEOUT_S = 15.0
_TIMEOUT_S = 60.0


class Refused(ClusterError):
    """The engine answered with an error."""

    def __init__(self, status: int, explanation: str) -> None:
        super().__init__(f"the Docker engine refused a request: {explanation}", "`lab doctor` may know more")
        self.status = status
        self.explanation = explanation


def unix_socket(host: str | None = None) -> str | None:
    """The socket of an engine, or of the one that the docker command line would use; None where it may have none."""
    host = host or os.environ.get("DOCKER_HOST")
    if host is not None:
        return host.removeprefix("unix://") if host.startswith("unix:///") else None
    try:
        config = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker")) / "config.json"
        context = json.loads(config.read_text()).get("currentContext")
    except FileNotFoundError:
        context = None
    except (OSError, ValueError, AttributeError):
        return None
    return None if context not in (None, "", "default") or "DOCKER_CONTEXT" in os.environ else _SOCKET


def dial(path: str, timeout_s: float) -> socket.socket:
    """A connection to an engine's Unix socket.

    Raises:
        OSError: nobody is there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


class DirectApi:
    """Requests to an engine.

    Args:
        dial: makes a connection to it, within so many seconds.
    """

    def __init__(self, dial: Callable[[float], socket.socket]) -> None:
        self._dial = dial

    def ping(self, timeout_s: float = _PING_TIMEOUT_S) -> None:
        """See whether the engine answers."""
        self._ask("GET", "/_ping", timeout_s).close()

    def containers(self, labels: list[str]) -> list[dict[str, Any]]:
        """Every container with these labels, given in the form `name=value` or `name`."""
        filters = quote(json.dumps({"label": labels}))
        found: list[dict[str, Any]] = self.ask("GET", f"/containers/json?all=1&filters={filters}")
        return found

    def inspect(self, container: str, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
        """All about a container."""
        found: dict[str, Any] = self.ask("GET", f"/containers/{container}/json", timeout_s=timeout_s)
        return found

    def events(self, filters: Mapping[str, list[str]], since: float, until: float) -> list[dict[str, Any]]:
        """What the engine remembers between two Unix times; it answers once the second one has passed."""
        path = f"/events?since={since:.6f}&until={until:.6f}&filters={quote(json.dumps(filters))}"
        with self._ask("GET", path) as connection, connection.makefile("rb") as body:
            return [json.loads(line) for line in body if line.strip()]

    def attach(self, container: str) -> socket.socket:
        """A stream to the standard input, output and error of a container's first process."""
        return self.stream(f"/containers/{container}/attach?stdin=1&stdout=1&stderr=1&stream=1")

    def stream(self, path: str, said: Mapping[str, Any] | None = None) -> socket.socket:
        """The stream that such a request becomes."""
        return self._ask("POST", path, said=said)

    def act(self, container: str, what: str, said: Mapping[str, Any] | None = None) -> None:
        """Do something with a container: `kill`, `start`, `pause`, `rename?name=...`, or `update` to what is said."""
        self._ask("POST", f"/containers/{container}/{what}", said=said).close()

    def ask(self, method: str, path: str, said: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S) -> Any:
        """What the engine answers, read as JSON; None where it answers nothing."""
        with self._ask(method, path, timeout_s, said) as connection, connection.makefile("rb") as body:
            answer = body.read()
            return json.loads(answer) if answer else None

    def _ask(
        self, method: str, path: str, timeout_s: float = _TIMEOUT_S, said: Mapping[str, Any] | None = None
    ) -> socket.socket:
        """Send a request and read the head of its answer; what the socket gives then is the body, up to its end.

        Raises:
            OSError: the engine does not answer.
            Refused: it answers with an error.
        """
        connection = self._dial(timeout_s)
        try:
            connection.settimeout(timeout_s)
            connection.sendall(_request(method, path, said))
            head = b""
            while not head.endswith(b"\r\n\r\n"):  # a byte at a time: the next one after it is not ours to read
                byte = connection.recv(1)
                if not byte:
                    raise ConnectionError("the connection was closed before an answer had come")
                head += byte
            status = int(head.split(None, 2)[1])
            if status >= 400:
                with connection.makefile("rb") as body:
                    raise Refused(status, _message(body.read()))
            return connection
        except BaseException:
            connection.close()
            raise


def _request(method: str, path: str, said: Mapping[str, Any] | None) -> bytes:
    head = f"{method} {path} HTTP/1.0\r\nHost: docker\r\n"
    if said is None:
        return f"{head}\r\n".encode()
    body = json.dumps(said).encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()
