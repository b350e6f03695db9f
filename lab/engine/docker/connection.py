"""Connections to a Docker engine: its Unix socket for the requests of a warm run, docker-py for all others."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlsplit

from lab.engine.ready import Stream
from lab.errors import ClusterError, EngineAbsent, EngineUnavailable
from lab.feature import find_hook
from lab.node.files import home_folder
from lab.plan.cluster import Node
from lab.words import clip_end

if TYPE_CHECKING:
    import docker

_SOCKET = "/var/run/docker.sock"
_NOT_FOUND = 404
_TIMEOUT_S = 60.0
_PIECE_BYTES = 1 << 18
_END_OF_HEAD = b"\r\n\r\n"
_PROBE_DEADLINE_S = 30


class Refused(ClusterError):
    """The engine answered with an error."""

    def __init__(self, status: int, explanation: str) -> None:
        super().__init__(f"the Docker engine refused a request: {explanation}", "`lab doctor` checks the engine")
        self.status, self.explanation = status, explanation


def unix_socket() -> str | None:
    """Return the socket of the engine that the docker command line would use; None if it may have none."""
    if (host := os.environ.get("DOCKER_HOST")) is not None:
        return host.removeprefix("unix://") if host.startswith("unix:///") else None
    try:
        config = Path(os.environ.get("DOCKER_CONFIG") or f"{home_folder()}/.docker", "config.json")
        context = json.loads(config.read_text()).get("currentContext")
    except FileNotFoundError:
        context = None
    except (OSError, ValueError, AttributeError):
        return None
    return None if context not in (None, "", "default") or "DOCKER_CONTEXT" in os.environ else _SOCKET


def connect_socket(path: str, timeout_s: float) -> socket.socket:
    """Connect to an engine's Unix socket.

    Raises:
        OSError: no engine listens there.
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
    """Requests sent directly to an engine's socket: importing docker-py takes as long as a warm run.

    Args:
        connect: opens a connection, given a timeout in seconds.
    """

    def __init__(self, connect: Callable[[float], socket.socket]) -> None:
        self._connect = connect

    def request(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> bytes:
        """Send a request and return the whole answer.

        Raises:
            OSError: the engine does not answer.
            Refused: it answers with an error.
        """
        with self.stream(path, body, method, timeout_s) as connection, connection.makefile("rb") as answer:
            return answer.read()

    def stream(
        self, path: str, body: Mapping[str, Any] | None = None, method: str = "POST", timeout_s: float = _TIMEOUT_S
    ) -> socket.socket:
        """Send a request and read the head of its answer; the socket then delivers the body, or a stream.

        Raises:
            OSError: the engine does not answer.
            Refused: it answers with an error.
        """
        return self.streams([path], body, method, timeout_s)[0]

    def streams(
        self,
        paths: Iterable[str],
        body: Mapping[str, Any] | None = None,
        method: str = "POST",
        timeout_s: float = _TIMEOUT_S,
    ) -> list[socket.socket]:
        """Do the same for several paths: send all requests first, so that the engine handles them in parallel."""
        opened = list[socket.socket]()
        try:
            for path in paths:
                opened.append(connection := self._connect(timeout_s))
                connection.settimeout(timeout_s)
                connection.sendall(_request(method, path, body))
            for connection in opened:
                _read_head(connection)
            return opened
        except BaseException:
            for connection in opened:
                connection.close()
            raise


def _read_head(connection: socket.socket) -> None:
    """Read the head of an answer, and nothing more.

    Raises:
        ConnectionError: the connection ended.
        Refused: the answer is an error.
    """
    head = b""
    while not head.endswith(_END_OF_HEAD):
        if not (arrived := connection.recv(_PIECE_BYTES, socket.MSG_PEEK)):
            raise ConnectionError("the engine closed the connection before it answered")
        before, end, _ = (head + arrived).partition(_END_OF_HEAD)
        head += connection.recv(len(before) + len(end) - len(head))
    if (status := int(head.split(None, 2)[1])) >= 400:
        with connection.makefile("rb") as answer:
            raise Refused(status, _message(answer.read()))


def _request(method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
    head = f"{method} {path} HTTP/1.0\r\nHost: docker\r\n"
    if body is None:
        return f"{head}\r\n".encode()
    text = json.dumps(body).encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def _message(body: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(body)["message"])
    return body.decode("utf-8", "replace").strip()


T = TypeVar("T")

_FIRST_ANSWER_S = 15
_ATTACHED = "stdin=1&stdout=1&stderr=1&stream=1"
_PORT = 2375
"""Default port of an engine without TLS."""


def open_api() -> docker.APIClient:
    """Connect docker-py to the engine that the docker command line would use.

    Raises:
        EngineUnavailable: none answers; the message says why.
    """
    import docker
    import docker.errors
    from docker.utils import kwargs_from_env

    class Api(docker.APIClient):
        """Calls an engine with its own certificates, whatever certificates the environment names for the web."""

        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            return super().merge_environment_settings(url, proxies, stream, self.verify, cert)

    try:
        address: dict[str, Any] = dict(kwargs_from_env())
        context: Any = None if os.environ.get("DOCKER_HOST") else docker.ContextAPI.get_current_context()
        if context is not None and context.Host:
            tls = (context.Host.startswith("tcp:") and context.TLSConfig) or False
            address = {"base_url": context.Host, "tls": tls}
        api = Api(**address, timeout=_FIRST_ANSWER_S)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise _unavailable("no Docker engine answers", error) from error
    api.timeout = int(_TIMEOUT_S)
    return api


def find_direct(api: docker.APIClient) -> DirectApi | None:
    """Return requests on plain sockets to docker-py's engine; None: it is behind TLS or ssh."""
    if path := getattr(api.get_adapter(api.base_url), "socket_path", ""):
        return DirectApi(partial(connect_socket, path))
    where = urlsplit(str(api.base_url))
    peer = where.hostname or "", where.port or _PORT
    return DirectApi(partial(socket.create_connection, peer)) if where.scheme == "http" else None


_CAUSES = {
    "Permission denied": "permission denied on its socket",
    "No such file": "its socket does not exist",
    "FileNotFoundError": "its socket does not exist",
    "Connection refused": "connection refused",
}


def _unavailable(
    problem: str, error: BaseException, kind: type[EngineUnavailable] = EngineUnavailable
) -> EngineUnavailable:
    """Return the error for an engine that cannot be reached, with the cause and a hint."""
    text = str(error)
    first = clip_end(text.splitlines()[0], 200) if text else type(error).__name__
    cause = next((cause for sign, cause in _CAUSES.items() if sign in text), first)
    if "Permission denied" in text:
        return kind(f"{problem}: {cause}", "add yourself to the group `docker`, or use `--engine local`")
    return kind(f"{problem}: {cause}", "start Docker, set DOCKER_HOST, or use `--engine local`, which needs no Docker")


def _stopped(error: BaseException) -> EngineUnavailable:
    return _unavailable("the Docker engine stopped answering", error)


class Connection:
    """Requests to the engine's API: those of a warm run directly to its socket, all others through docker-py.

    Raises:
        EngineUnavailable: no engine answers.
    """

    def __init__(self) -> None:
        self._api: docker.APIClient | None = None
        path = unix_socket()
        self._direct = DirectApi(partial(connect_socket, path)) if path else None
        if self._direct is None:
            self._api = open_api()
            self._direct = find_direct(self._api)
            return
        try:
            self._direct.request("GET", "/_ping", None, _FIRST_ANSWER_S)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError) and "DOCKER_HOST" not in os.environ
            kind = EngineAbsent if absent else EngineUnavailable
            raise _unavailable("no Docker engine answers", error, kind) from error

    @property
    def api(self) -> docker.APIClient:
        """The low-level client of docker-py."""
        if self._api is None:
            self._api = open_api()
        return self._api

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> bytes:
        """Send a request and return the answer.

        Raises:
            EngineUnavailable: the engine does not answer.
            Refused: it answers with an error.
        """
        if self._direct is not None:
            with _answering():
                return self._direct.request(method, path, body, timeout_s)

        def by_client() -> bytes:
            api: Any = self.api
            answer = api.request(method, api._url(path), json=body and dict(body), timeout=timeout_s)  # noqa: SLF001
            api._raise_for_status(answer)  # noqa: SLF001
            return bytes(answer.content)

        return self.call(by_client)

    def request_existing(self, method: str, path: str) -> bytes | None:
        """Send a request and return the answer; None if the path does not exist. See `request`."""
        try:
            return self.request(method, path)
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            return None

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S) -> Any:
        """Send a request and return the answer, parsed as JSON; None for an empty answer. See `request`."""
        answer = self.request(method, path, body, timeout_s)
        return json.loads(answer) if answer.strip() else None

    def containers(self, labels: list[str]) -> list[dict[str, Any]]:
        """Return every container with these labels, given as `name=value` or `name`."""
        return self.listed("containers/json", {"label": labels}, "all=1&")

    def listed(self, what: str, filters: Mapping[str, list[str]], options: str = "") -> list[dict[str, Any]]:
        """Return the objects of one kind, such as `networks`, that pass these filters."""
        return cast("list[dict[str, Any]]", self.ask("GET", f"/{what}?{options}filters={quote(json.dumps(filters))}"))

    def inspect(self, container: str, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
        """Return the full description of a container."""
        return cast("dict[str, Any]", self.ask("GET", f"/containers/{container}/json", timeout_s=timeout_s))

    def act(self, container: str, action: str, body: Mapping[str, Any] | None = None) -> None:
        """Perform an action on a container: `kill`, `start`, `pause`, `unpause`, `rename?name=...`, or `update`."""
        self.request("POST", f"/containers/{container}/{action}", body)

    def create_container(self, body: Mapping[str, Any], name: str = "") -> str:
        """Create a container and return its id."""
        return str(self.ask("POST", f"/containers/create{f'?name={name}' if name else ''}", body)["Id"])

    @contextmanager
    def temporary_container(self, body: Mapping[str, Any]) -> Iterator[str]:
        """Create a container, yield its id, and remove it with its anonymous volumes at the end of the block."""
        container = self.create_container(body)
        try:
            yield container
        finally:
            self.request("DELETE", f"/containers/{container}?force=1&v=1")

    def run_container(
        self, body: Mapping[str, Any], files: bytes = b"", deadline_s: int = _PROBE_DEADLINE_S
    ) -> tuple[int, str, str]:
        """Run a container to its end; return its exit code, standard output, and standard error.

        Args:
            body: of the request that creates it.
            files: a tar to unpack into its root first; empty: none.
            deadline_s: seconds that it may run.
        """
        with self.temporary_container(body) as container:
            if files:
                self.call(lambda: self.api.put_archive(container, "/", files))
            self.act(container, "start")
            code = int(self.call(lambda: self.api.wait(container, timeout=deadline_s))["StatusCode"])
            written = self.call(lambda: self.api.logs(container, stderr=False))
            errors = self.call(lambda: self.api.logs(container, stdout=False))
        return code, written.decode("utf-8", "replace"), errors.decode("utf-8", "replace")

    def attach(self, *containers: str) -> list[socket.socket]:
        """Open a stream to the first process of each container. See `stream`."""
        paths = [f"/containers/{container}/attach?{_ATTACHED}" for container in containers]
        if self._direct is None:
            return [self.stream(path) for path in paths]
        with _answering():
            return self._direct.streams(paths)

    def stream(self, path: str, body: Mapping[str, Any] | None = None) -> socket.socket:
        """Send a request and return the stream that its connection becomes.

        Raises:
            EngineUnavailable: the engine does not answer.
            Refused: it answers with an error.
        """
        if self._direct is None:
            if (open_remote := find_hook("remote_stream")) is None:
                raise EngineUnavailable(f"cannot use the remote engine {self.api.base_url}", "reinstall torch-lab")
            return cast("socket.socket", self.call(lambda: open_remote(self.api, path, body)))
        with _answering():
            return self._direct.stream(path, body)

    def read_archive(self, container: str, path: str) -> Iterator[bytes]:
        """Return a file or folder of a container as a tar, read on demand.

        The engine blocks the container until the caller has read all of it or closes the iterator.

        Raises:
            EngineUnavailable: the engine does not answer.
            Refused: it answers with an error.
        """
        read: Callable[[], bytes]
        if self._direct is None:
            pieces: Any = self.call(lambda: self.api.get_archive(container, path)[0])
            read = partial(self.call, lambda: next(pieces, b""))
        else:  # several times as fast
            with _answering():
                pieces = self._direct.stream(f"/containers/{container}/archive?path={quote(path)}", method="GET")
            read = partial(pieces.recv, _PIECE_BYTES)

        def pieces_read() -> Iterator[bytes]:
            with closing(pieces), _answering():
                yield from iter(read, b"")

        return pieces_read()

    def call(self, call: Callable[[], T]) -> T:
        """Call docker-py, and translate its errors.

        Raises:
            ClusterError: docker-py itself refuses, before anything is sent.
            EngineUnavailable: the engine does not answer.
            Refused: the engine answers with an error.
        """
        import docker.errors
        import requests
        import urllib3

        try:
            return call()
        except docker.errors.APIError as error:
            raise Refused(error.status_code or 0, str(error.explanation)) from error
        except docker.errors.DockerException as error:
            raise ClusterError(f"cannot send the request to the Docker engine: {error}") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _stopped(error) from error


@contextmanager
def _answering() -> Iterator[None]:
    """Turn errors of an engine's socket into `EngineUnavailable`."""
    try:
        yield
    except OSError as error:
        raise _stopped(error) from error


_HEADER_BYTES = 8


def read_frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Remove complete Docker frames from a buffer, and yield the stream and content of each.

    A frame has a header of 8 bytes: its stream in the first, its length in the last four.
    """
    while len(buffer) >= _HEADER_BYTES:
        end = _HEADER_BYTES + int.from_bytes(buffer[4:_HEADER_BYTES], "big")
        if len(buffer) < end:
            return
        frame = buffer[0], bytes(buffer[_HEADER_BYTES:end])
        del buffer[:end]
        yield frame


class DockerChannel(Stream):
    """A stream that receives the agent's standard output."""

    def __init__(self, node: Node, connection: socket.socket) -> None:
        super().__init__(node, connection)
        self._buffer = bytearray()
        self.complaints = b""
        """The end of the agent's standard error."""

    def attach(self, connection: socket.socket) -> None:
        """Continue with another stream to the node, which was started again."""
        self.close()
        super().__init__(self.node, connection)
        self._buffer.clear()

    def receive(self) -> bytes | None:
        """Return received data: None if there is none yet, empty if the other end is closed."""
        if not (chunk := super().receive()):
            return chunk
        self._buffer += chunk
        parts = []
        for stream, content in read_frames(self._buffer):
            if stream == 1:
                parts.append(content)
            else:
                self.complaints = (self.complaints + content)[-8192:]
        return b"".join(parts) or None
