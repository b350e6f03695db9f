"""Which engine to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from lab.errors import EngineUnavailable

if TYPE_CHECKING:
    from lab.engine.protocol import Engine

Choice = Literal["auto", "docker", "local"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


def select_engine(choice: Choice, cluster: str | None = None) -> tuple[Engine, str]:
    """The engine to use, and what a person should be told about the choice (empty: nothing).

    Args:
        choice: `auto` takes the local engine if the cluster exists there, else Docker if it answers, else local.
        cluster: the cluster that is wanted.

    Raises:
        EngineUnavailable: the engine that was asked for does not answer, or none does.
    """
    if choice != "auto":
        return OPENERS[choice](), ""
    if cluster is not None and _exists_locally(cluster):
        return OPENERS["local"](), ""
    try:
        return OPENERS["docker"](), ""
    except EngineUnavailable as no_docker:
        try:
            return OPENERS["local"](), f"using the local engine ({no_docker.message})"
        except EngineUnavailable as no_local:
            raise EngineUnavailable(f"{no_docker.message}; and {no_local.message}", no_local.hint) from None


def available_engines(choice: Choice = "auto") -> tuple[list[Engine], dict[Choice, EngineUnavailable]]:
    """Every engine that answers, and by name why the others do not; of a choice that is not `auto`, that one.

    Raises:
        EngineUnavailable: the engine that was asked for does not answer.
    """
    if choice != "auto":
        return [OPENERS[choice]()], {}
    engines: list[Engine] = []
    silent: dict[Choice, EngineUnavailable] = {}
    for name, open_engine in OPENERS.items():
        try:
            engines.append(open_engine())
        except EngineUnavailable as why:
            silent[name] = why
    return engines, silent


def _docker() -> Engine:
    from lab.engine.docker.engine import DockerEngine

    return DockerEngine()


def _local() -> Engine:
    from lab.engine.local.engine import LocalEngine

    return LocalEngine()


OPENERS: dict[Choice, Callable[[], Engine]] = {"docker": _docker, "local": _local}
"""What opens each engine; raises EngineUnavailable where it does not answer."""


def _exists_locally(cluster: str) -> bool:
    from lab.engine.local.layout import home_folder

    return (home_folder() / cluster).exists()  # half made counts too: somebody has to find it
