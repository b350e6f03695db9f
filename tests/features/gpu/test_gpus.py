"""What is said of GPUs, from given facts; none of it needs one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.engine import doctor as gpus
from lab.engine.doctor import Wanted, explain_missing_gpus, refuse_missing
from lab.engine.doctor import gpu_checks as checks_of_feature
from lab.errors import MachineLacks
from lab.features.gpu import self_test as gpu_test
from lab.features.gpu.checks import GpuFacts, find_gpus, gpu_checks, read_steps
from tests.golden import golden

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


def test_too_few_gpus_for_all_nodes_are_a_warning() -> None:
    assert levels(ALL, 2, 3)["gpus"] == "warning"
    assert levels(ALL, 5)["gpus"] == "failed"


def test_of_another_machine_only_what_its_engine_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")

    assert levels(find_gpus({"runc": {}, "nvidia": {}})) == {"gpu runtime": "ok"}
    assert explain_missing_gpus(8) == ""


def test_local_nodes_need_neither_toolkit_nor_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    assert levels(find_gpus(None)).keys() == {"gpu driver", "gpus"}


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
    checks = read_steps("", -11, "something\nSegmentation fault\n")

    assert [(check.level, check.result) for check in checks] == [("failed", golden(1))]


@pytest.mark.long
def test_the_procedure_of_the_self_test_comes_to_its_end_where_gloo_stands_in_for_nccl(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(gpu_test.ON, "cpu")
    checks = checks_of_feature(Wanted(gpu_test=True))

    assert [(check.level, check.what) for check in checks] == [("ok", "torch"), ("ok", "all_reduce over gloo")]
