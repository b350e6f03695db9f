"""What a stranger's scenario mounts, and which image it names: none of it becomes root in a node or on the machine."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import Cluster
from lab.cli.main import main
from lab.errors import ClusterUnfit, ScenarioError, UsageError
from lab.spec.keys import Volume
from lab.spec.load import open_scenario
from tests.golden import golden

if TYPE_CHECKING:
    import docker

ABSENT = f"lab-test-absent-{os.getpid()}:1"
EVIL = """
import os, pathlib
pathlib.Path("/mnt/out", f"{__name__}-{os.getuid()}").touch()
raise ImportError(__name__)
"""
"""A module that says who imported it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scenario's folder with a script and folders to mount."""
    (tmp_path / "s.py").write_text("print('ran')\n")
    for name in ("etc", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    (tmp_path / "etc" / "ld.so.preload").write_text("/etc/evil.so\n")
    return tmp_path


def scenario_in(folder: Path, *lines: str) -> Path:
    path = folder / "s.yaml"
    path.write_text("\n".join(("script: s.py", *lines, "")))
    return path


@pytest.mark.parametrize(
    "target",
    [
        *("/etc", "//etc", "/./etc", "/etc/", "///etc//", "/etc/ld.so.preload", "/etc/./ld.so.preload", "/etc/x/y"),
        *("/lib", "/lib64", "/lib/x86_64-linux-gnu", "/libx32", "/bin", "/sbin", "/bin/sh", "/usr", "/usr/bin"),
        *("/usr/lib/python3/dist-packages/evil.pth", "/usr/local/lib/python3.11/site-packages", "/opt", "/opt/lab"),
        *("/opt/lab/labnode", "/opt/conda", "/var", "/var/lab", "/var/lab/run", "/root", "/root/.local", "/tmp"),
        *("/tmp/x", "/dev", "/dev/shm", "/proc", "/proc/1", "/sys/fs/cgroup", "/run", "/run/lock", "/boot", "/shared"),
        *("/shared/x", "/", "//", "/.", "/./.", "/mnt/../etc", "/.."),
    ],
)
def test_no_volume_of_a_scenario_hides_what_a_node_runs_on(folder: Path, target: str) -> None:
    path = scenario_in(folder, f"volumes: ['./etc:{target}']")

    with pytest.raises(ScenarioError) as refused:
        open_scenario(path)

    assert refused.value.message.startswith(f"{path}:2:11: volumes[0]: found './etc:{target}'")


@pytest.mark.parametrize("target", ["/data", "/mnt/a", "/host", "/workspace/x", "/home/me/data", "/own"])
def test_other_folders_of_a_node_may_be_volumes(folder: Path, target: str) -> None:
    (volume,) = open_scenario(scenario_in(folder, f"volumes: ['./etc:{target}/']")).volumes
    assert volume.target == target


def test_a_volume_of_the_command_line_hides_nothing_either(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--engine", "docker", "--volume", f"{folder / 'etc'}:/etc"]) == 2
    assert golden(1) in capsys.readouterr().err


@pytest.fixture(scope="module")
def image_with_programs(node_image: str, docker_engine: docker.DockerClient) -> Iterator[str]:
    """An image that keeps programs where others have none."""
    name = f"lab-test-programs-{os.getpid()}"
    lines = (
        f"FROM {node_image}",
        "RUN mkdir -p /programs /workspace/venv/bin",
        "ENV PATH=/workspace/venv/bin:$PATH PYTHONPATH=/home/tools",
    )
    docker_engine.images.build(fileobj=io.BytesIO("\n".join(lines).encode()), tag=name, rm=True)
    yield name
    docker_engine.images.remove(name, force=True)


class TestOnDocker:
    """With real containers."""

    pytestmark = pytest.mark.docker

    def test_a_volume_that_python_code_names_hides_nothing(self, folder: Path) -> None:
        for target in ("/etc", "/usr/lib", "/lib64", "/opt/lab", "/var/lab", "//etc", "/mnt/../etc", "/./etc"):
            with pytest.raises(ClusterUnfit, match="the node's own"):
                Cluster(
                    name=f"t-code-{os.getpid()}",
                    engine="docker",
                    nodes=1,
                    volumes=(Volume(source=folder / "etc", target=target),),
                ).up()

    def test_a_volume_in_another_one_cannot_follow_its_links(self, folder: Path) -> None:
        (folder / "out" / "link").symlink_to("/etc")
        path = scenario_in(folder, "volumes: ['./etc:/mnt/a/link', './out:/mnt/a']")

        with pytest.raises(ClusterUnfit, match=golden(1)):
            Cluster(name=f"t-nested-{os.getpid()}", engine="docker").run(path, runs=folder / "runs")

    def test_a_folder_whose_path_has_a_colon_is_no_second_target(self, folder: Path) -> None:
        (folder / "a:" / "etc").mkdir(parents=True)
        (folder / "a:" / "s.py").write_text("print('ran')\n")
        path = scenario_in(folder / "a:", "volumes: ['./etc:/mnt/x']")

        with pytest.raises(ClusterUnfit, match=golden(1)):
            Cluster(name=f"t-colon-{os.getpid()}", engine="docker").run(path, runs=folder / "runs")

    def test_volumes_with_names_of_modules_are_not_imported_by_root(self, folder: Path) -> None:
        names = ("torch", "importlib", "json", "tarfile", "traceback", "numpy", "selectors", "sitecustomize")
        for name in names:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(EVIL)
        volumes = ", ".join(f"'./{name}:/{name}'" for name in names)
        path = scenario_in(folder, "nodes: 1", f"volumes: ['./out:/mnt/out', {volumes}]")

        result = Cluster(name=f"t-modules-{os.getpid()}", engine="docker").run(path, runs=folder / "runs")

        assert sorted(each.name for each in (folder / "out").iterdir()) == []
        assert result.passed, result.reason

    def test_a_worker_leaves_no_setuid_file_in_a_volume(self, folder: Path) -> None:
        script = Path(__file__).parent / "scripts" / "marks_files.py"
        (folder / "s.py").write_text(script.read_text())
        path = scenario_in(folder, "nodes: 1", "volumes: ['./out:/mnt/out']", "args: [/mnt/out]")

        result = Cluster(name=f"t-marks-{os.getpid()}", engine="docker").run(path, runs=folder / "runs")

        assert result.passed, result.reason + result.ranks[0].log
        assert result.ranks[0].notes["marked"] == []
        left = [*(folder / "out").iterdir()]
        assert len(left) > 3, "it did write there"
        assert [each.name for each in left if stat.S_IMODE(each.lstat().st_mode) & 0o6000] == []

    def test_an_image_that_a_scenario_names_is_not_pulled_unasked(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = scenario_in(folder, f"image: {ABSENT}")
        cluster = Cluster(name=f"t-image-{os.getpid()}", engine="docker")

        with pytest.raises(UsageError) as refused:
            cluster.run(path, runs=folder / "runs")

        assert golden(1, ABSENT) in refused.value.message
        assert f"`docker pull {ABSENT}` or --pull" in refused.value.hint
        assert cluster.info() is None
        words = ["run", "--engine", "docker", "--name", cluster.name, "--runs", str(folder / "runs"), str(path)]
        assert main(words) == 2
        assert "does not have" in capsys.readouterr().err
        assert main([*words, "--pull"]) != 0
        assert golden(2, ABSENT) in capsys.readouterr().err, "it was tried"

    def test_an_image_that_is_there_needs_no_leave(
        self, folder: Path, docker_engine: docker.DockerClient, node_image: str
    ) -> None:
        name = f"lab-test-there-{os.getpid()}:1"
        docker_engine.images.get(node_image).tag(name)
        try:
            path = scenario_in(folder, "nodes: 1", f"image: {name}")
            result = Cluster(name=f"t-there-{os.getpid()}", engine="docker").run(path, runs=folder / "runs")
            assert result.passed, result.reason
        finally:
            docker_engine.images.remove(name)

    @pytest.mark.parametrize(
        "target",
        [
            "/programs",
            "/programs/x",
            "/workspace",
            "/workspace/venv",
            "/workspace/venv/lib/x",
            "/home",
            "/home/tools/x",
        ],
    )
    def test_no_volume_hides_programs_of_an_image(
        self, folder: Path, docker_engine: docker.DockerClient, image_with_programs: str, target: str
    ) -> None:
        before = len(docker_engine.containers.list(all=True, filters={"ancestor": image_with_programs}))
        path = scenario_in(folder, f"image: {image_with_programs}", f"volumes: ['./etc:{target}']")

        with pytest.raises(ClusterUnfit, match=golden(1, image_with_programs)):
            Cluster(name=f"t-hides-{os.getpid()}", engine="docker").run(path, runs=folder / "runs")

        assert len(docker_engine.containers.list(all=True, filters={"ancestor": image_with_programs})) == before
