"""Which engine to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from lab.engine.home import has_any, home_of
from lab.errors import EngineUnavailable

if TYPE_CHECKING:
    from lab.engine.protocol import Engine

Choice = Literal["auto", "docker", "local", "swarm", "slurm"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
OF_SEVERAL_HOSTS: tuple[Choice, ...] = ("swarm", "slurm")
"""Engines that are taken only where they are asked for, or have the cluster."""


def select_engine(choice: Choice, cluster: str | None = None) -> tuple[Engine, str]:
    """The engine to use, and what a person should be told about the choice (empty: nothing).

    Args:
        choice: `auto` takes the engine in whose folder the cluster is, else Docker if it answers, else local.
        cluster: the cluster that is wanted.

    Raises:
        EngineUnavailable: the engine that was asked for does not answer, or none does.
    """
    if choice != "auto":
        return OPENERS[choice](), ""
    there = _engine_with(cluster) if cluster is not None else None
    if there is not None:
        return OPENERS[there](), ""
    try:
        return OPENERS["docker"](), ""
    except EngineUnavailable as no_docker:
        try:
            return OPENERS["local"](), f"using the local engine ({no_docker.message})"
        except EngineUnavailable as no_local:
            raise EngineUnavailable(f"{no_docker.message}; and {no_local.message}", no_local.hint) from None


def available_engines(choice: Choice = "auto") -> tuple[list[Engine], dict[Choice, EngineUnavailable]]:
    """Every engine that answers, and by name why the others do not; of a choice that is not `auto`, that one.

    Those of several hosts are asked where a cluster of theirs is: it may take long until they answer.

    Raises:
        EngineUnavailable: the engine that was asked for does not answer.
    """
    if choice != "auto":
        return [OPENERS[choice]()], {}
    engines: list[Engine] = []
    silent: dict[Choice, EngineUnavailable] = {}
    for name, open_engine in OPENERS.items():
        if name in OF_SEVERAL_HOSTS and not has_any(name):
            continue
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


def _swarm() -> Engine:
    from lab.engine.swarm.engine import SwarmEngine

    return SwarmEngine()


def _slurm() -> Engine:
    from lab.engine.slurm.engine import SlurmEngine

    return SlurmEngine()


OPENERS: dict[Choice, Callable[[], Engine]] = {"docker": _docker, "local": _local, "swarm": _swarm, "slurm": _slurm}
"""What opens each engine; raises EngineUnavailable where it does not answer."""


def _engine_with(cluster: str) -> Choice | None:
    """The engine in whose folder a cluster is; half made counts too: somebody has to find it."""
    known: tuple[Choice, ...] = ("local", *OF_SEVERAL_HOSTS)
    return next((engine for engine in known if (home_of(engine) / cluster).exists()), None)
