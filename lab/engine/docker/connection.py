"""A connection to the Docker engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lab.engine.docker.direct import DirectApi, Refused, dial, unix_socket
from lab.errors import EngineAbsent, EngineUnavailable
from lab.words import clip

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
U = TypeVar("U")

_CALL_TIMEOUT_S = 60
_FIRST_ANSWER_S = 15
_AT_ONCE = 8
"""Requests: an engine waits for its kernel most of the time that it takes to start a container."""


CONTEXT = "context:"
"""How the address of an engine begins that is what a context of the docker command line says."""


def open_client(host: str | None = None) -> docker.DockerClient:
    """Connect to an engine, or to the one that the docker command line would use.

    Args:
        host: its address, such as `unix:///var/run/docker.sock`, `ssh://me@b`, `tcp://b:2376` or `context:b`.

    Raises:
        EngineUnavailable: none answers; the message says why.
    """
    import docker
    import docker.errors

    try:
        chosen = _address(host) if host else _usual_address()
        client = docker.DockerClient.__new__(docker.DockerClient)
        client.api = _api(chosen)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise EngineUnavailable(f"no Docker engine answers: {_root_cause(error)}", _fix_for(error)) from error
    client.api.timeout = _CALL_TIMEOUT_S
    return client


def _api(address: dict[str, Any]) -> docker.APIClient:
    """What calls the engine there; with its certificates, whatever the environment says of those of the web."""
    import docker

    class Api(docker.APIClient):
        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            return super().merge_environment_settings(url, proxies, stream, self.verify, cert)

    return Api(**address, timeout=_FIRST_ANSWER_S)


def _usual_address() -> dict[str, Any]:
    """Where the engine is that the docker command line would use."""
    import docker
    from docker.utils import kwargs_from_env

    context = None if "DOCKER_HOST" in os.environ else docker.ContextAPI.get_current_context()
    return _of_context(context) if context is not None and context.Host else dict(kwargs_from_env())


def _address(host: str) -> dict[str, Any]:
    """Where an engine is, and how it and this machine prove who they are, as docker-py takes it."""
    import docker
    from docker.utils import kwargs_from_env

    if not host.startswith(CONTEXT):
        return dict(kwargs_from_env(environment={**os.environ, "DOCKER_HOST": host}))
    name = host.removeprefix(CONTEXT)
    context = docker.ContextAPI.get_context(name)
    if context is None:
        raise ValueError(f"there is no context {name}")
    return _of_context(context)


def _of_context(context: Any) -> dict[str, Any]:
    """Where the engine of a context of the docker command line is."""
    tls = context.TLSConfig if context.Host.startswith("tcp:") else None
    return {"base_url": context.Host, "tls": tls or False}


def _root_cause(error: BaseException) -> str:
    text = str(error)
    if "Permission denied" in text:
        return "permission denied on its socket"
    if "No such file" in text or "FileNotFoundError" in text:
        return "its socket does not exist"
    if "Connection refused" in text:
        return "connection refused"
    return clip(text.splitlines()[0], 200) if text else type(error).__name__


def _fix_for(error: BaseException) -> str:
    if "Permission denied" in str(error):
        return "add yourself to the group `docker`, or use `--engine local`"
    return "start Docker, set DOCKER_HOST, or use `--engine local`, which needs no Docker"


class Connection:
    """Calls of the engine's API: the few of a run on a warm cluster straight to its socket, all others by docker-py.

    Args:
        client: docker-py's client; None: one is made when it is needed.
        host: the address of the engine; None: that of the engine that the docker command line would use.

    Raises:
        EngineUnavailable: no engine answers.
    """

    def __init__(self, client: docker.DockerClient | None = None, host: str | None = None) -> None:
        self._client, self._host = client, host
        path = unix_socket(host) if client is None else None
        self._direct = DirectApi(partial(dial, path)) if path else None
        if self._direct is None:
            self._client = client or open_client(host)
            return
        try:
            self._direct.ping()
        except OSError as error:
            absent = isinstance(error, FileNotFoundError) and host is None and "DOCKER_HOST" not in os.environ
            kind = EngineAbsent if absent else EngineUnavailable
            raise kind(f"no Docker engine answers: {_root_cause(error)}", _fix_for(error)) from error

    @property
    def client(self) -> docker.DockerClient:
        """docker-py's client."""
        if self._client is None:
            self._client = open_client(self._host)
        return self._client

    @property
    def api(self) -> docker.APIClient:
        """docker-py's low-level client."""
        return self.client.api

    def ping(self, timeout_s: float) -> None:
        """See whether the engine answers.

        Raises:
            EngineUnavailable: it does not.
        """
        self._ask(
            lambda direct: direct.ping(timeout_s), lambda api: api.get(f"{api.base_url}/_ping", timeout=timeout_s)
        )

    # -- the calls of a run

    def containers(self, labels: list[str]) -> list[dict[str, Any]]:
        """Every container with these labels, given as `name=value` or `name`."""
        return self._ask(
            lambda direct: direct.containers(labels), lambda api: api.containers(all=True, filters={"label": labels})
        )

    def inspect(self, container: str, timeout_s: float = _CALL_TIMEOUT_S) -> dict[str, Any]:
        """All about a container; an engine that is far away is given as long as for any call."""
        return self._ask(
            lambda direct: direct.inspect(container, timeout_s), lambda api: api.inspect_container(container)
        )

    def events(self, container: str, kinds: Sequence[str], span: tuple[float, float]) -> list[dict[str, Any]]:
        """The events of these kinds that the engine remembers of a container, between two Unix times of its clock."""
        since, until = span
        filters = {"container": [container], "event": list(kinds)}
        return self._ask(
            lambda direct: direct.events(filters, since, until),
            lambda api: [*api.events(since=since, until=until, filters=filters, decode=True)],
        )

    def attach(self, container: str) -> Any:
        """A stream to the first process of a container: a plain socket, or what docker-py wraps around one."""

        def by_client(api: Any) -> Any:
            from lab.engine.docker.remote import attached  # not at the start: ssl takes long to import

            return attached(api, container)

        return self._ask(lambda direct: direct.attach(container), by_client)

    def attach_all(self, containers: Sequence[str]) -> list[Any]:
        """A stream to each; an engine that may be far away is asked for several at once."""
        if self._direct is not None:
            return [self.attach(container) for container in containers]
        return self.together(self.attach, containers)

    def kill(self, container: str) -> None:
        """Kill a container, and wait until it has ended."""
        self._ask(lambda direct: direct.act(container, "kill"), lambda api: api.kill(container))

    def start(self, container: str) -> None:
        """Start a container that does not run."""
        self._ask(lambda direct: direct.act(container, "start"), lambda api: api.start(container))

    def pause(self, container: str) -> None:
        """Have all processes of a container stand still."""
        self._ask(lambda direct: direct.act(container, "pause"), lambda api: api.pause(container))

    def unpause(self, container: str) -> None:
        """Have them go on."""
        self._ask(lambda direct: direct.act(container, "unpause"), lambda api: api.unpause(container))

    def update(self, container: str, limits: Mapping[str, int]) -> None:
        """Change limits of a container, named as in its `HostConfig`."""

        def by_client(api: Any) -> None:
            answer = api._post_json(api._url(f"/containers/{container}/update"), data=dict(limits))  # noqa: SLF001
            api._raise_for_status(answer)  # noqa: SLF001

        self._ask(lambda direct: direct.act(container, "update", limits), by_client)

    def rename(self, container: str, name: str) -> None:
        """Give a container another name."""
        self._ask(lambda direct: direct.act(container, f"rename?name={name}"), lambda api: api.rename(container, name))

    def ask(
        self, method: str, path: str, said: Mapping[str, Any] | None = None, timeout_s: float = _CALL_TIMEOUT_S
    ) -> Any:
        """What the engine answers to a request that nothing else here is for, read as JSON."""

        def by_client(api: Any) -> Any:
            url, body = api._url(path), None if said is None else dict(said)  # noqa: SLF001
            answer = api.request(method, url, json=body, timeout=timeout_s)
            api._raise_for_status(answer)  # noqa: SLF001
            return answer.json() if answer.content else None

        return self._ask(lambda direct: direct.ask(method, path, said, timeout_s), by_client)

    def _ask(self, directly: Callable[[DirectApi], T], otherwise: Callable[[Any], T]) -> T:
        """One of the two, with the errors of `call`."""
        if self._direct is not None:
            try:
                return directly(self._direct)
            except OSError as error:
                raise _stopped_answering(error) from error
        return self.call(lambda: otherwise(self.api))

    # -- all others

    def call(self, call: Callable[[], T]) -> T:
        """One call of docker-py.

        Raises:
            EngineUnavailable: the engine does not answer.
            Refused: it answers with an error.
        """
        import docker.errors
        import requests.exceptions

        try:
            return call()
        except docker.errors.APIError as error:
            raise Refused(error.status_code or 0, str(error.explanation)) from error
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            raise _stopped_answering(error) from error

    def together(self, action: Callable[[U], T], items: Iterable[U]) -> list[T]:
        """Do the same for each item at once; the first error is raised after all have ended."""
        from concurrent.futures import ThreadPoolExecutor

        items = list(items)
        if len(items) < 2:
            return [action(item) for item in items]
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(items))) as pool:
            return list(pool.map(action, items))


def _stopped_answering(error: Exception) -> EngineUnavailable:
    return EngineUnavailable(f"the Docker engine stopped answering: {_root_cause(error)}", _fix_for(error))
