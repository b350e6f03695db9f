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

from lab import Result
from tests.engines.conftest import written
from tests.golden import golden

SCRIPT = Path(__file__).parent / "scripts" / "environment.py"
MAY_DIFFER = {
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_USE_AGENT_STORE",
}
"""Variables whose value belongs to the run; the last is `true` and not `True`, see `lab.node.rank.groups`."""
Facts = dict[str, Any]
Run = Callable[..., Result]
pytestmark = pytest.mark.xdist_group("engines-docker")  # one run under torchrun for both engines


def facts_in(output: str) -> list[Facts]:
    found = [json.loads(line) for line in re.findall(r"^FACTS (.*)$", output, re.MULTILINE)]
    return sorted(found, key=lambda facts: int(facts["environment"]["RANK"]))


@pytest.fixture(scope="module")
def under_torchrun(tmp_path_factory: pytest.TempPathFactory) -> list[Facts]:
    """What both ranks see under torchrun, started next to the script with two arguments."""
    logs = tmp_path_factory.mktemp("torchrun")  # a file a rank: lines as long as these may mix in a pipe
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--redirects", "1", "--log-dir", str(logs), SCRIPT.name]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    subprocess.run(
        [*command, "one", "two words"],
        cwd=SCRIPT.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return facts_in("".join(path.read_text() for path in logs.rglob("stdout.log")))


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
        assert rank.notes["read beside"] == golden(1)
        assert rank.notes["helper"] == golden(2)


def test_workers_have_no_privileges_and_cannot_get_any(run: Callable[..., Result]) -> None:
    result = run("privileges.py", nodes=2)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        status = rank.notes["status"]
        assert status["NoNewPrivs"] == "1"
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert rank.notes["groups"] in ([], [os.getgid()])
        assert rank.notes["may set up an interface"] is False


@pytest.mark.parametrize("one_user", [False, True])
def test_workers_in_a_container_are_users_of_their_own_and_never_root(run: Run, engine: str, one_user: bool) -> None:
    result = run("privileges.py", nodes=2, nproc_per_node=2, one_user=one_user)

    assert result.passed, result.reason + result.ranks[0].log
    uids = [rank.notes["ids"][0] for rank in result.ranks]
    if engine == "local":  # on this machine a person is who they are
        assert set(uids) == {os.geteuid()}
    else:
        assert min(uids) > 1000
        assert len(set(uids[:2])) == (1 if one_user else 2)
        assert uids[:2] == uids[2:], "the same on every node, so that they can share files"
    for rank in result.ranks:
        ids = rank.notes["ids"]
        assert (ids[0], ids[1]) == (ids[2], ids[3])
        assert rank.notes["may write"] == {
            "working folder": True,
            "temporary folder": True,
            "home": True,
            "shared": True,
        }


def test_what_one_rank_makes_another_of_its_node_can_change(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import os, sys, tempfile\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "folders = [os.path.join(top, 'made') for top in ('.', tempfile.gettempdir(), os.environ['LAB_SHARED'])]\n"
        "for turn in range(2):\n"
        "    for folder in folders:\n"
        "        if dist.get_rank() == turn:\n"
        "            os.makedirs(folder, exist_ok=True)\n"
        "            open('main.py', 'a').write('# changed')\n"
        "            open(os.path.join(folder, 'file'), 'w').write(str(turn))\n"
        "            os.replace(os.path.join(folder, 'file'), os.path.join(folder, 'other'))\n"
        "            open('/dev/stdout', 'w').write('said')\n"
        "    dist.barrier()\n"
        "if dist.get_rank() == 0:\n"
        "    for folder in folders:\n"
        "        assert open(os.path.join(folder, 'other')).read() == '1'\n"
        "        os.remove(os.path.join(folder, 'other'))\n"
        "        os.rmdir(folder)\n",
    )

    result = run(script, nodes=1, nproc_per_node=2)

    assert result.passed, result.reason + result.ranks[0].log


def test_ranks_of_a_node_that_are_one_user_share_private_files(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import os\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n"
        "    os.close(os.open('private', os.O_CREAT | os.O_RDWR, 0o600))\n"
        "dist.barrier()\n"
        "os.close(os.open('private', os.O_RDWR))\n",
    )

    result = run(script, nodes=1, nproc_per_node=2, one_user=True)

    assert result.passed, result.reason + result.ranks[0].log


def test_a_worker_can_use_everything_that_training_needs(run: Run) -> None:
    result = run("children.py", "loads_data", nodes=1)

    assert result.passed, result.reason + result.ranks[0].log
    assert result.ranks[0].notes["result"] == 120.0
