"""What is said of GPUs, from given facts; none of it needs one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine import doctor as gpus
from lab.engine.doctor import GpuFacts, gpu_checks, look, refusal, refuse_missing
from lab.errors import MachineLacks

ALL = GpuFacts(driver="NVRM version 550", devices=4, toolkit=True, runtime=True)


def levels(facts: GpuFacts, wanted: int = 1, nodes: int = 1) -> dict[str, str]:
    return {check.what: check.level for check in gpu_checks(facts, wanted, nodes)}


def test_where_everything_is_there_nothing_is_to_be_mended() -> None:
    assert {*levels(ALL, 2, 2).values()} == {"ok"}


def test_everything_that_is_missing_is_told_with_its_mend() -> None:
    checks = gpu_checks(GpuFacts(driver="", devices=0, toolkit=False, runtime=False), 1)

    assert [(check.what, check.level) for check in checks] == [
        ("gpu driver", "failed"),
        ("gpus", "failed"),
        ("gpu toolkit", "failed"),
        ("gpu runtime", "failed"),
    ]
    assert all(check.fix for check in checks)


def test_nodes_that_have_to_share_gpus_are_a_warning() -> None:
    assert levels(ALL, 2, 3)["gpus"] == "warning"
    assert levels(ALL, 5)["gpus"] == "failed"


def test_of_another_machine_only_what_its_engine_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")

    assert levels(look({"runc": {}, "nvidia": {}})) == {"gpu runtime": "ok"}
    assert refusal(8) == ""


def test_local_nodes_need_neither_toolkit_nor_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    assert levels(look(None)).keys() == {"gpu driver", "gpus"}


def test_what_this_machine_lacks_is_refused_in_words_that_begin_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()

    refuse_missing(2)
    with pytest.raises(MachineLacks, match=r"^needs GPU: 3 GPUs a node, and this machine has 2\n"):
        refuse_missing(3)
