"""What is said of GPUs, from given facts; none of it needs one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from lab.engine import doctor as gpus
from lab.engine.doctor import Wanted, explain_missing_gpus, gpu_checks, refuse_missing
from lab.errors import MachineLacks
from lab.features.gpu import checks, self_test
from lab.features.gpu.checks import judge_gpus, read_steps
from tests.golden import golden


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes this machine one with GPUs, a driver, and the container toolkit, or without them."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    monkeypatch.setattr(checks, "_DRIVER", tmp_path / "version")
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(devices: int) -> None:
        for number in range(devices):
            (tmp_path / f"nvidia{number}").touch()
        if devices:
            (tmp_path / "version").write_text("NVRM version:  550\nGCC version")
            (tmp_path / "nvidia-ctk").touch(mode=0o755)

    return make


def levels(wanted: Wanted, runtimes: Collection[str] | None) -> dict[str, str]:
    return {check.what: check.level for check in judge_gpus(wanted, runtimes)}


def test_where_everything_is_there_nothing_is_to_be_mended(machine: Callable[..., None]) -> None:
    machine(4)
    found = judge_gpus(Wanted(gpus=2, nodes=2), ["runc", "nvidia"])
    assert {check.level for check in found} == {"ok"}
    assert found[0].result == "NVRM version: 550"


def test_everything_that_is_missing_is_told_with_its_mend(machine: Callable[..., None]) -> None:
    machine(0)
    found = judge_gpus(Wanted(gpus=1), ["runc"])

    assert [(check.what, check.level) for check in found] == [
        ("gpu driver", "failed"),
        ("gpus", "failed"),
        ("gpu toolkit", "failed"),
        ("gpu runtime", "failed"),
    ]
    assert all(check.fix for check in found)


def test_too_few_gpus_for_all_nodes_are_a_warning(machine: Callable[..., None]) -> None:
    machine(4)
    assert levels(Wanted(gpus=2, nodes=3), None)["gpus"] == "warning"
    assert levels(Wanted(gpus=5, nodes=1), None)["gpus"] == "failed"


def test_of_another_machine_only_what_its_engine_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")

    assert levels(Wanted(gpus=1), ["runc", "nvidia"]) == {"gpu runtime": "ok"}
    assert explain_missing_gpus(8) == ""


def test_local_nodes_need_neither_toolkit_nor_runtime(machine: Callable[..., None]) -> None:
    machine(1)
    assert {check.what for check in gpu_checks(Wanted(gpus=1))} == {"gpu driver", "gpus"}


def test_what_this_machine_lacks_is_refused_in_words_that_begin_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()

    refuse_missing(2)
    refuse_missing(1, nodes=2)
    with pytest.raises(MachineLacks, match=golden(1)):
        refuse_missing(3)
    with pytest.raises(MachineLacks, match=golden(2)):
        refuse_missing(1, nodes=3)


def test_steps_of_the_self_test_are_checks_and_what_else_is_printed_is_none() -> None:
    steps = [
        {"what": "torch", "worked": True, "found": "2.13", "mend": ""},
        {"what": "driver", "worked": False, "found": "none", "mend": "install it"},
    ]
    output = "NCCL version 2\n" + "\n".join(map(json.dumps, steps)) + "\n3\n[1]\n"

    assert [(check.level, check.what, check.fix) for check in read_steps(output, 1)] == [
        ("ok", "torch", ""),
        ("failed", "driver", "install it"),
    ]


def test_a_self_test_that_ended_without_a_word_is_told_by_its_last_words() -> None:
    found = read_steps("", -11, "something\nSegmentation fault\n")

    assert [(check.level, check.result) for check in found] == [("failed", golden(1))]


@pytest.mark.long
def test_the_procedure_of_the_self_test_comes_to_its_end_where_gloo_stands_in_for_nccl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(self_test.ON, "cpu")
    found = gpu_checks(Wanted(gpu_test=True))

    assert [(check.level, check.what) for check in found] == [("ok", "torch"), ("ok", "all_reduce over gloo")]
