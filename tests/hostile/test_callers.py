"""What holds where root runs the lab holds for a person without rights, and the other way round."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.short import SHORT

HERE = Path(__file__).parent
NOBODY = 65534
"""Who may use the engine and nothing else, but look where an interpreter may be that only root can see."""
WANTED = "no_script_may_do and warm or leaves_anywhere and warm or hostile_rank and all"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of somebody who has nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="lab-nobody-", dir=SHORT))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def anybody_may_read(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


if os.geteuid() == 0:  # else all of these tests are run by such a person

    @pytest.mark.long
    @pytest.mark.docker
    @pytest.mark.timeout(900)
    def test_the_same_holds_when_somebody_without_rights_runs_the_lab(home: Path) -> None:
        socket = Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
        become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={socket.stat().st_gid}"]
        if not all(map(anybody_may_read, (HERE, Path(sys.executable).resolve().parent))):
            become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        words = ["-n0", "-q", "-p", "no:cacheprovider", "--long", "--basetemp", str(home / "tests"), "-m", "docker"]

        done = subprocess.run(
            [*become, sys.executable, "-m", "pytest", *words, "-k", WANTED, str(HERE)],
            cwd=HERE.parent.parent,
            env={**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=880,
            check=False,
        )

        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        assert "3 passed" in done.stdout
