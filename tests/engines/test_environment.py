"""A script sees under the lab what it sees under torchrun, and runs without privileges as whoever started it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result

SCRIPT = Path(__file__).parent / "scripts" / "environment.py"
MAY_DIFFER = {
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_USE_AGENT_STORE",
}
"""Variables whose value belongs to the run; the last is `true` and not `True`, see `lab.node.rendezvous`."""
Facts = dict[str, Any]


def facts_in(output: str) -> list[Facts]:
    found = [json.loads(line) for line in re.findall(r"^FACTS (.*)$", output, re.MULTILINE)]
    return sorted(found, key=lambda facts: int(facts["environment"]["RANK"]))


@pytest.fixture(scope="module")
def under_torchrun() -> list[Facts]:
    """What both ranks see under torchrun, started beside the script with two arguments."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", SCRIPT.name]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [*command, "one", "two words"],
        cwd=SCRIPT.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return facts_in(done.stdout)


@pytest.fixture(params=[False, True], ids=["warm", "cold"])
def under_lab(request: pytest.FixtureRequest, run: Callable[..., Result]) -> list[Facts]:
    """The same under the lab."""
    result = run(SCRIPT.name, "one", "two words", nodes=1, nproc_per_node=2, cold=request.param)
    assert result.passed, result.reason + result.ranks[0].log
    return [facts_in(rank.log)[0] for rank in result.ranks]


def test_every_variable_that_torchrun_sets_is_set_and_no_other_of_its_kind(
    under_torchrun: list[Facts], under_lab: list[Facts]
) -> None:
    for theirs, ours in zip(under_torchrun, under_lab, strict=True):
        by_torchrun = {
            name
            for name, value in theirs["environment"].items()
            if os.environ.get(name) != value and name not in ("_", "PYTEST_CURRENT_TEST")
        }
        kind = re.compile(r"RANK|TORCH|(LOCAL|GROUP|ROLE|WORLD|MASTER|OMP)_")
        of_its_kind = {name for name in ours["environment"] if kind.match(name) and name not in os.environ}
        assert of_its_kind == by_torchrun
        assert {name: ours["environment"][name] for name in by_torchrun - MAY_DIFFER} == {
            name: theirs["environment"][name] for name in by_torchrun - MAY_DIFFER
        }


def test_argv_main_and_path_are_those_of_torchrun(under_torchrun: list[Facts], under_lab: list[Facts]) -> None:
    for theirs, ours in zip(under_torchrun, under_lab, strict=True):
        assert ours["argv"] == theirs["argv"] == ["environment.py", "one", "two words"]
        assert ours["file"].endswith("/environment.py")
        same = theirs.keys() - {"environment", "file", "flags"}
        assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


def test_the_working_folder_is_the_folder_of_the_script(run: Callable[..., Result]) -> None:
    result = run("workplace.py", nodes=2)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        assert rank.notes["read beside"] == "data beside the script\n"
        assert rank.notes["helper"] == "imported from beside the script"


def test_workers_have_no_privileges_and_cannot_get_any(run: Callable[..., Result]) -> None:
    result = run("privileges.py", nodes=2)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        status = rank.notes["status"]
        assert status["NoNewPrivs"] == "1"
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert rank.notes["ids"] == [os.getuid(), os.getgid()] * 2
        assert rank.notes["groups"] in ([], [os.getgid()])
        assert rank.notes["may set up an interface"] is False


def test_workers_run_as_the_invoking_user(
    run: Callable[..., Result], engine: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.getuid()
    if engine == "docker":  # a container can become anybody; on this machine a person is who they are
        uid = 12345
        monkeypatch.setattr(os, "getuid", lambda: uid)

    result = run("privileges.py", nodes=2)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        assert rank.notes["ids"][0] == uid
        assert rank.notes["may write"] == {
            "working folder": True,
            "temporary folder": True,
            "home": True,
            "shared": True,
        }


def test_a_worker_that_is_not_root_can_use_everything_that_training_needs(
    run: Callable[..., Result], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "docker":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        monkeypatch.setattr(os, "getgid", lambda: 12345)

    result = run("children.py", "loads_data", nodes=1)

    assert result.passed, result.reason + result.ranks[0].log
    assert result.ranks[0].notes["result"] == 120.0
