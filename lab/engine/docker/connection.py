"""A connection to the Docker engine: docker-py's client, and what all calls of it have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from lab.errors import EngineUnavailable

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
U = TypeVar("U")

_CALL_TIMEOUT_S = 60
_FIRST_ANSWER_S = 15


def open_client(timeout_s: int = _CALL_TIMEOUT_S) -> docker.DockerClient:
    """Connect to the engine that the docker command line would use.

    Raises:
        EngineUnavailable: none answers; the message says why.
    """
    import docker
    import docker.errors

    try:
        if "DOCKER_HOST" in os.environ:
            client = docker.from_env(timeout=_FIRST_ANSWER_S)
        else:
            context = docker.ContextAPI.get_current_context()
            host = context.Host
            client = (
                docker.DockerClient(base_url=host, timeout=_FIRST_ANSWER_S)
                if host
                else docker.from_env(timeout=_FIRST_ANSWER_S)
            )
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise EngineUnavailable(f"no Docker engine answers: {_root_cause(error)}", _fix_for(error)) from error
    client.api.timeout = timeout_s
    return client


def _root_cause(error: BaseException) -> str:
    text = str(error)
    if "Permission denied" in text:
        return "permission denied on its socket"
    if "No such file" in text or "FileNotFoundError" in text:
        return "its socket does not exist"
    if "Connection refused" in text:
        return "connection refused"
    return text.splitlines()[0][:200] if text else type(error).__name__


def _fix_for(error: BaseException) -> str:
    if "Permission denied" in str(error):
        return "add yourself to the group `docker`, or use `--engine local`"
    return "start Docker, set DOCKER_HOST, or use `--engine local`, which needs no Docker"


class Connection:
    """Calls of the engine's API.

    Args:
        client: docker-py's client.
    """

    def __init__(self, client: docker.DockerClient) -> None:
        self.client = client
        self.api = client.api

    def call(self, call: Callable[[], T]) -> T:
        """One call of the engine's API; an engine that does not answer becomes `EngineUnavailable`."""
        import requests.exceptions

        try:
            return call()
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            raise EngineUnavailable(
                f"the Docker engine stopped answering: {_root_cause(error)}", _fix_for(error)
            ) from error

    def together(self, action: Callable[[U], T], items: Iterable[U]) -> list[T]:
        """Do the same for each item at once; the first error is raised after all have ended."""
        items = list(items)
        if len(items) < 2:
            return [action(item) for item in items]
        with ThreadPoolExecutor(max_workers=min(4, len(items))) as pool:
            return list(pool.map(action, items))
