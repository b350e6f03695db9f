"""`lab fault` as a person types it: something is broken, listed, and healed; twice does no harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lab import Cluster
from lab.cli.main import main
from lab.engine.select import engine_names
from lab.features.faults.kinds import fault_kinds
from lab.features.faults.verbs import unsupported_engines

Typed = Callable[..., Any]


@pytest.fixture
def typed(cluster: Cluster, engine: str, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types `lab fault ...` for the cluster; what it says as data."""

    def typed(*words: str) -> Any:
        where = [] if words == ("kinds",) else ["--name", cluster.name, "--engine", engine]
        assert main(["fault", *words, *where, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return typed


def in_force(typed: Typed) -> list[str]:
    return [one["said"] for one in typed("list")]


def test_what_is_broken_by_hand_is_listed_until_it_is_healed(typed: Typed, engine: str) -> None:
    words = ("partition", "node0,node1", "/", "node2") if engine == "docker" else ("pause", "node1")
    told = typed(*words)
    assert (told["healed"], in_force(typed)) == (False, [told["fault"]])
    assert [one["said"] for one in typed("heal")] == [told["fault"]]
    assert (in_force(typed), typed("heal")) == ([], [])


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_what_is_broken_for_a_while_is_healed_by_the_same_command(typed: Typed) -> None:
    assert typed("pause", "node1", "--for", "0.1s")["healed"]
    assert in_force(typed) == []


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_all_kinds_are_told_with_the_engines_that_cannot_do_them(typed: Typed) -> None:
    told = {one["kind"]: one["cannot"] for one in typed("kinds")}
    assert told == {name: unsupported_engines(kind) for name, kind in fault_kinds().items()}
    named = {engine for whys in told.values() for engine in whys}
    assert named == {"local", "slurm", "kubernetes"} <= {*engine_names()}


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("kil", "node1"), "kill"),
        (("kill", "node7"), "node7"),
        (("partition", "isolate node1"), "which is not possible on the local engine"),
        (("heal", "node1"), "takes no arguments"),
    ],
)
def test_what_cannot_be_broken_is_refused_in_a_sentence(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert main(["fault", *words, "--name", cluster.name, "--engine", "local"]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert cluster.faults() == []
