"""Every engine is one: what the layers above may call is there, with the same arguments."""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Protocol

import pytest

from lab.engine import protocol as protocols
from lab.engine.agent_holder import LocalChannel
from lab.engine.docker.connection import DockerChannel
from lab.engine.docker.engine import DockerEngine
from lab.engine.local.engine import LocalEngine
from lab.engine.protocol import (
    Channel,
    Engine,
    ImageStore,
    LimitControl,
    NodeState,
    PowerControl,
    PythonRunner,
    Removed,
    require_capability,
)
from lab.errors import ClusterUnfit
from lab.features.slurm.engine import SlurmEngine
from tests.fake_engine import FakeChannel, FakeEngine
from tests.golden import golden

CAPABILITIES = [
    one
    for one in vars(protocols).values()
    if getattr(one, "_is_protocol", False) and one not in (Channel, Engine, Protocol)
]
OF_IMAGES = {ImageStore, LimitControl}
PROCESSES = (LocalEngine, SlurmEngine)


def methods(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and not name.startswith("_")]


def parameters(function) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (Engine, DockerEngine),
        (Engine, LocalEngine),
        (Engine, SlurmEngine),
        (Engine, FakeEngine),
        *((capability, DockerEngine) for capability in CAPABILITIES),
        *((capability, FakeEngine) for capability in CAPABILITIES if capability not in (ImageStore, PythonRunner)),
        *((capability, engine) for capability in CAPABILITIES if capability not in OF_IMAGES for engine in PROCESSES),
        (Channel, DockerChannel),
        (Channel, LocalChannel),
        (Channel, FakeChannel),
    ],
)
def test_an_implementation_has_every_method_with_the_same_arguments(protocol: type, implementation: type):
    assert methods(protocol)
    for name in methods(protocol):
        assert parameters(getattr(implementation, name)) == parameters(getattr(protocol, name)), name


def test_the_core_is_small():
    assert len(methods(Engine)) <= 9
    assert len(CAPABILITIES) == 9


def test_an_engine_is_asked_for_what_it_can():
    assert require_capability(FakeEngine(), PowerControl)
    assert not any(issubclass(engine, one) for one in OF_IMAGES for engine in PROCESSES)
    with pytest.raises(ClusterUnfit, match=golden(1)):
        require_capability(SimpleNamespace(name="fake"), LimitControl)


def test_every_engine_has_a_name_of_its_own():
    known = (DockerEngine, LocalEngine, SlurmEngine, FakeEngine)
    assert len({engine.name for engine in known}) == len(known)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (NodeState(running=False, gone=True), "was removed"),
        (NodeState(running=True), "runs, but its agent does not answer"),
        (NodeState(running=False, exit_code=137, out_of_memory=True), "was killed by the kernel: out of memory"),
        (NodeState(running=False, exit_code=137), "was killed (SIGKILL)"),
        (NodeState(running=False, exit_code=139), "was killed (SIGSEGV)"),
        (NodeState(running=False, exit_code=1), "ended with exit code 1"),
        (NodeState(running=False, exit_code=255), "ended with exit code 255"),
    ],
)
def test_the_end_of_a_node_is_a_sentence(state: NodeState, sentence: str):
    assert state.sentence() == sentence


def test_what_was_removed_adds_up():
    one = Removed(clusters=("a",), nodes=2, networks=1)
    two = replace(one, clusters=("a", "b"), volumes=1)
    assert one + two == Removed(clusters=("a", "b"), nodes=4, networks=2, volumes=1)
    assert not Removed(clusters=("a",))
    assert Removed(files=1)
