"""The backend that the process groups of a script get."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from lab.node.messages.agent import Named
from lab.node.rank import groups, note

GROUPS = "torch.distributed.distributed_c10d"


class Told:
    """A module in the place of PyTorch's, with what was made there and what was said of it."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.said: list[Any] = []
        self.module: Any = ModuleType(GROUPS)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()

    def init_process_group(backend: str | None = None, init_method: str | None = None, **more: Any) -> None:
        found.made.append((backend, more))

    def _new_group_with_tag(ranks: Any = None, timeout: Any = None, backend: str | None = None) -> None:
        found.made.append((backend, {}))

    found.module.init_process_group = init_process_group
    found.module._new_group_with_tag = _new_group_with_tag
    monkeypatch.setitem(sys.modules, GROUPS, found.module)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.setattr(groups, "_reported", set())
    monkeypatch.setattr(note, "send_statement", lambda path, message: found.said.append(message))
    return found


def begin(monkeypatch: pytest.MonkeyPatch, backend: str | None, *, instead: bool = False) -> None:
    for name, value in groups.backend_variables(backend, instead=instead).items():
        monkeypatch.setenv(name, value)
    groups.choose_backend(1, "/folder", "/socket")


def test_a_run_without_a_backend_changes_nothing(told: Told, monkeypatch: pytest.MonkeyPatch):
    before = dict(vars(told.module))
    begin(monkeypatch, None)
    assert vars(told.module) == before


def test_where_the_script_names_none_its_group_has_that_of_the_run(told: Told, monkeypatch: pytest.MonkeyPatch):
    begin(monkeypatch, "mpi")
    told.module.init_process_group()
    told.module.init_process_group(None, "env://")
    told.module.init_process_group(backend=None)
    assert [backend for backend, _ in told.made] == ["mpi"] * 3
    assert told.said == []


def test_what_the_script_names_stays_and_is_told_once(told: Told, monkeypatch: pytest.MonkeyPatch):
    begin(monkeypatch, "mpi")
    told.module.init_process_group("gloo")
    told.module._new_group_with_tag([0], None, "gloo")
    assert [backend for backend, _ in told.made] == ["gloo", "gloo"]
    (said,) = told.said
    assert isinstance(said, Named)
    assert (said.rank, said.named, said.backend, said.instead) == (1, "gloo", "mpi", False)


def test_asked_for_it_comes_instead_of_what_is_named(told: Told, monkeypatch: pytest.MonkeyPatch):
    begin(monkeypatch, "mpi", instead=True)
    told.module.init_process_group(backend="cpu:gloo,cuda:nccl")
    told.module._new_group_with_tag([0], None, "gloo")
    told.module._new_group_with_tag(backend="GLOO")
    assert [backend for backend, _ in told.made] == ["mpi"] * 3
    assert {(said.named, said.instead) for said in told.said} == {
        ("cpu:gloo,cuda:nccl", True), ("gloo", True), ("GLOO", True),
    }  # fmt: skip


@pytest.mark.parametrize("named", ["gloo", "GLOO", "cpu:gloo", "cpu:gloo,cuda:nccl"])
def test_a_name_that_holds_it_stays_as_it_is(told: Told, monkeypatch: pytest.MonkeyPatch, named: str):
    begin(monkeypatch, "gloo", instead=True)
    told.module.init_process_group(named)
    assert told.made == [(named, {})]
    assert told.said == []


def test_a_group_for_which_nothing_is_named_has_the_backend_of_the_default_one(
    told: Told, monkeypatch: pytest.MonkeyPatch
):
    begin(monkeypatch, "mpi")
    told.module._new_group_with_tag([0, 1])
    assert told.made == [(None, {})]


def test_a_place_that_mpi_gives_by_itself_is_not_repeated_to_it(told: Told, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    begin(monkeypatch, "mpi", instead=True)
    told.module.init_process_group("gloo", rank=1, world_size=3, timeout=5)
    told.module.init_process_group("gloo", rank=1, world_size=4)
    assert told.made == [("mpi", {"timeout": 5}), ("mpi", {"world_size": 4})]
