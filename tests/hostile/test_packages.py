"""Packages of strangers: nothing of a wheel runs with rights, replaces what a node has, or decides on a verdict."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lab import Cluster, LabError
from lab.engine.packages import Prepared, package_store
from lab.engine.select import select_engine
from lab.errors import ClusterUnfit
from lab.features.packages.stores import store_folder
from lab.features.packages.wheels import Target, ask_python, check_wheels
from tests.engines.conftest import scenario_of, written
from tests.wheel_files import make_wheel

pytestmark = pytest.mark.half

NAME = f"labtest{uuid.uuid4().hex[:8]}"
"""Of the packages of this process: images with packages of the same name would be the same to others."""
SPY = """\
import os, sys
def _effective():
    with open("/proc/self/status") as file:
        return next(line.split()[1] for line in file if line.startswith("CapEff:"))
os.environ["LABTEST_SEEN"] = os.environ.get("LABTEST_SEEN", "") + f"{os.getuid()}/{_effective()} "
with open(f"/tmp/labtest-{os.getuid()}-{os.getpid()}", "w"):
    pass
"""
"""What a wheel runs in every interpreter that reads its folder: it says who it is."""
WHO = f"""\
import glob, os, subprocess, sys
import {NAME}
from lab import note
note("seen", os.environ["LABTEST_SEEN"].split())
note("uid", os.getuid())
note("users", sorted({{name.split("-")[1] for name in glob.glob("/tmp/labtest-*")}}))
told = "import {NAME}, sys; print({NAME}.__file__, sys.executable)"
note("child", subprocess.run([sys.executable, "-c", told], capture_output=True, text=True).stdout.split())
note("isolated", subprocess.run([sys.executable, "-I", "-c", told], capture_output=True).returncode)
note("program", subprocess.run(["{NAME}program"], capture_output=True, text=True).stdout.strip())
folder = os.path.dirname({NAME}.__file__)
prefix = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
modes = [os.lstat(os.path.join(top, name)) for top, _, names in os.walk(prefix) for name in names]
note("special", sum(bool(one.st_mode & 0o7000) for one in modes))
note("owners", sorted({{one.st_uid for one in modes}}))
"""


def raw_wheel(folder: Path, entries: Mapping[str, bytes], *, name: str = NAME, mode: int = 0o644) -> Path:
    """A wheel with these files, whose names and modes are written as they are."""
    about = f"{name}-1.0.dist-info"
    every = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **entries,
    }
    every.setdefault(f"{about}/RECORD", "".join(f"{path},,\n" for path in every).encode())
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, content in every.items():
            entry = zipfile.ZipInfo(inner)
            entry.external_attr = (mode if inner in entries else stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, content)
    return path


@pytest.fixture
def prepared(
    engine: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[Prepared]]]:
    """What a test makes of packages; it is removed afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    subject = package_store(select_engine(engine)[0])  # type: ignore[arg-type]
    before = {one.name for one in subject.prepared()}

    def made() -> list[Prepared]:
        new = [one for one in subject.prepared() if one.name not in before]
        return [one for one in new if any(NAME in asked for asked in one.requirements)]

    yield made
    for one in made():
        assert subject.discard(one) == ""


def alone(engine: str, *names: str, nodes: int = 2) -> Cluster:
    """A cluster with packages, strict where the engine has such."""
    return Cluster(
        nodes,
        name=f"t-{uuid.uuid4().hex[:12]}",
        engine=engine,  # type: ignore[arg-type]
        strict=engine == "docker",
        requirements=list(names),
    )


def refused(engine: str, *asked: str) -> str:
    """What is said where packages are refused."""
    with pytest.raises(LabError) as error:
        package_store(select_engine(engine)[0]).prepare(None, asked, announce=lambda _: None)  # type: ignore[arg-type]
    assert error.value.exit_code == 2, error.value
    assert error.value.message.isprintable()
    return error.value.message


@pytest.mark.usefixtures("torch_stub")
def test_what_a_wheel_runs_by_itself_runs_as_the_user_of_a_rank_alone(
    engine: str, index: Path, prepared: object, tmp_path: Path
) -> None:
    entry = f"[console_scripts]\n{NAME}program = {NAME}:main\n"
    files = {f"{NAME}.pth": f"import {NAME}", f"{NAME}-1.0.dist-info/entry_points.txt": entry}
    make_wheel(index, NAME, files={**files, f"{NAME}.py": SPY + "def main():\n    print('runs')\n"})

    path = written(tmp_path / "script", f"# /// script\n# dependencies = [{NAME!r}]\n# ///\n{WHO}")
    with alone(engine, NAME) as cluster:
        results = [cluster.run(path, runs=tmp_path / "runs", cold=cold) for cold in (False, False, True)]

    for result in results:
        assert result.passed, result.reason
        for rank in result.ranks:
            notes = rank.notes
            mine = str(notes["uid"])
            assert notes["program"] == "runs"
            assert notes["isolated"] == 0
            assert notes["child"][1].endswith("/bin/python")
            if engine == "docker":
                assert notes["seen"] == [f"{mine}/0000000000000000"], "it has run elsewhere before"
                assert notes["users"] == [mine]
                assert int(mine) >= 20000
                assert notes["special"] == 0
                assert notes["owners"] == [0]


ATTACKS = [
    "sys.modules.get('labnode.node.rank.worker', sys).__dict__.update(_exit_code=lambda value: 0)",
    "import labnode.node.rank.worker as w\nfor n in ('_run_script', '_exit_code'): setattr(w, n, lambda *_: 0)",
    "import labnode.node.rank.worker as w; w._leave = lambda *_, **__: os._exit(0)",
    "import labnode.node.rank.worker as w; w._exit_natively = w._exit = lambda code: os._exit(0)",
    "real = os._exit; os._exit = lambda code: real(0)",
    "import atexit; atexit.register(os._exit, 0)",
    "import threading; threading._shutdown = lambda: os._exit(0)",
    "import builtins; real = builtins.exec\n"
    "def mine(*args):\n    try: real(*args)\n    except SystemExit: pass\nbuiltins.exec = mine",
    "sys.excepthook = lambda *_: os._exit(0)",
    "import labnode.node.rank.note as n, atexit; n.send = lambda *_: None; atexit.register(os._exit, 0)",
    "os.waitpid = lambda pid, options: (pid, 0)\nos.WEXITSTATUS = lambda status: 0",
]
"""What a wheel does in an interpreter that reads its folder."""


@pytest.mark.usefixtures("torch_stub")
def test_a_wheel_does_not_decide_on_the_exit_code(engine: str, index: Path, prepared: object, tmp_path: Path) -> None:
    code = (
        f"import os, sys\nATTACKS = {ATTACKS!r}\n"
        "if sys.argv[-1].isdigit():\n    exec(ATTACKS[int(sys.argv[-1])])\n"
        "else:\n    os.WEXITSTATUS = lambda status: 0  # an agent would ask that\n"
    )
    make_wheel(index, NAME, files={f"{NAME}.pth": f"import {NAME}", f"{NAME}.py": code})
    path = written(tmp_path / "script", f"import sys\nimport {NAME}\nsys.exit(3)\n")

    with alone(engine, NAME, nodes=1) as cluster:
        results = [cluster.run(scenario_of(path, number), runs=tmp_path / "runs") for number in range(len(ATTACKS))]

    assert [result.verdict for result in results] == ["failed"] * len(ATTACKS)
    assert all(rank.exit_code != 0 for result in results for rank in result.ranks)


OVERLAPS = {
    "torch/__init__.py": "torch/__init__.py",
    "torch/labtestnew.py": "torch/labtestnew.py",
    "torch.py": "torch.py",
    "torch.cpython-311-x86_64-linux-gnu.so": "torch.cpython-311-x86_64-linux-gnu.so",
    "numpy/core/evil.py": "numpy/core/evil.py",
    "json.py": "json.py",
    "os/__init__.py": "os/__init__.py",
    "lab/__init__.py": "lab/__init__.py",
    "labnode/node/agent.py": "labnode/node/agent.py",
    "sitecustomize.py": "sitecustomize.py",
    "usercustomize.py": "usercustomize.py",
    "lab-below.pth": "lab-below.pth",
    "{NAME}-1.0.data/purelib/torch/nn.py": "torch/nn.py",
    "{NAME}-1.0.data/platlib/numpy.so": "numpy.so",
    "{NAME}-1.0.data/data/lib/python3.11/site-packages/torch/x.py": "torch/x.py",
    "{NAME}-1.0.data/data/pyvenv.cfg": "pyvenv.cfg",
    "{NAME}-1.0.data/data/bin/python3": "python3",
    "{NAME}-1.0.data/scripts/python3": "python3",
    "{NAME}-1.0.data/scripts/python": "python",
    "{NAME}-1.0.data/scripts/torchrun": "torchrun",
    "{NAME}-1.0.dist-info/entry_points.txt": "bin/python3",
    "../labtestout.py": "../labtestout.py",
    "/etc/labtestout": "/etc/labtestout",
    "a/../../labtestout.py": "a/../../labtestout.py",
    "{NAME}-1.0.data/data/../../labtestout": "labtestout",
    "a\\b.py": "b.py",
    f"{'a' * 300}.py": "aaa",
    "/".join("ab" * 2000): "a/b/a/b",
    "torch-99.0.dist-info/METADATA": "torch-99.0.dist-info",
    "a\x1b[31mred.py": "red.py",
    "a\u202ered.py": "red.py",
}
"""A file of a wheel, whose name stands for `{NAME}`, and what the message names."""


@pytest.fixture(scope="module")
def target() -> Target:
    """The Python of the lab, as local nodes have it."""
    with tempfile.TemporaryDirectory() as folder:
        return ask_python("image x", Path(folder))


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_wheel_that_does_not_fit_is_refused_with_the_name_of_its_file(
    tmp_path: Path, target: Target, name: str
) -> None:
    content = "[console_scripts]\npython3 = x:main\n" if "entry" in name else "raise SystemExit(9)\n"
    wheel = raw_wheel(tmp_path, {name.replace("{NAME}", NAME): content.encode()})

    with pytest.raises(ClusterUnfit) as error:
        check_wheels(target, [wheel], whole_path=True)

    assert wheel.name in error.value.message
    assert OVERLAPS[name] in error.value.message
    assert error.value.message.isprintable()


@pytest.mark.sample(1)  # the wheels are checked in one place, by the tests above
@pytest.mark.local_first
@pytest.mark.parametrize("name", ["torch/__init__.py", "{NAME}-1.0.data/scripts/python3", "../labtestout.py"])
def test_nodes_are_not_made_of_a_wheel_that_does_not_fit(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]], name: str
) -> None:
    raw_wheel(index, {name.replace("{NAME}", NAME): b"raise SystemExit(9)"})
    assert OVERLAPS[name] in refused(engine, NAME)
    assert prepared() == []


@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_a_program_of_the_image_is_not_replaced(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]]
) -> None:
    raw_wheel(index, {f"{NAME}-1.0.data/scripts/sh": b"#!/bin/true\n"})
    assert f"'{NAME}-1.0.data/scripts/sh', but image" in refused(engine, NAME)
    assert prepared() == []


BOMB_MIB = 260
"""Some more than what may be packed however small."""


@pytest.mark.sample(2)  # one rule for all damage
@pytest.mark.local_first
@pytest.mark.parametrize(
    "kind",
    [
        "link",
        "damaged",
        "bomb",
        "huge",
        "crowd",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("no metadata", "empty")),
    ],
)
def test_a_damaged_wheel_is_refused_and_nothing_is_left(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = raw_wheel(index, {f"{NAME}.py": b"\n" * 100}, mode=stat.S_IFLNK | 0o777 if kind == "link" else 0o644)
    if kind == "damaged":
        data = bytearray(wheel.read_bytes())
        data[-40:-20] = b"\0" * 20
        wheel.write_bytes(data)
    elif kind in ("bomb", "huge"):
        with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("labtestbomb", "w") as file:
            for _ in range(BOMB_MIB):
                file.write(bytes(1 << 20))
        if kind == "huge":
            data = wheel.read_bytes()
            said = struct.pack("<I", BOMB_MIB << 20)
            assert data.count(said) == 2
            wheel.write_bytes(data.replace(said, struct.pack("<I", 0xFFFFFFF0)))
    elif kind == "crowd":
        monkeypatch.setattr("lab.features.packages.wheels.MAX_FILES", 3)
    elif kind == "no metadata":
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{NAME}.py", "")
    elif kind == "empty":
        wheel.write_bytes(b"")

    with pytest.raises(LabError) as error:
        package_store(select_engine(engine)[0]).prepare(None, [NAME], announce=lambda _: None)  # type: ignore[arg-type]

    assert NAME in error.value.message
    assert error.value.message.isprintable()
    assert prepared() == []
    assert not [*(store_folder() / "fetching").iterdir()]


@pytest.mark.local_first
def test_modes_of_a_wheel_do_not_reach_this_machine(
    engine: str, index: Path, prepared: Callable[[], list[Prepared]], tmp_path: Path
) -> None:
    data = {f"{NAME}.py": b"", f"{NAME}-1.0.data/scripts/labtestsu": b"#!/bin/sh\n"}
    raw_wheel(index, data, mode=stat.S_IFREG | 0o6777)

    assert package_store(select_engine(engine)[0]).prepare(None, [NAME], announce=lambda _: None)  # type: ignore[arg-type]

    modes = [os.lstat(path).st_mode for path in tmp_path.rglob("*")]
    assert len(prepared()) == 1
    assert not [oct(mode) for mode in modes if mode & 0o7000 and not stat.S_ISDIR(mode)]
    assert not [oct(mode) for mode in modes if mode & 0o022 and not stat.S_ISLNK(mode) and not stat.S_ISDIR(mode)]
