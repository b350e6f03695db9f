"""Every Python that a script starts loads a small hook first, and sees nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.node.rank import joining

pytestmark = pytest.mark.half

LOOK = "import json, sys; print(json.dumps([sys.path, sorted(sys.modules)]))"


def look(*paths: str, **more: str) -> tuple[list[str], list[str]]:
    variables = joining.make_environment("/folder", None, os.pathsep.join(paths))
    environment = {"PATH": os.environ["PATH"], **variables, **more}
    said = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    path, modules = json.loads(said.stdout)
    return path, modules


def test_an_interpreter_has_the_path_and_the_modules_that_it_would_have(tmp_path: Path) -> None:
    plain = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(plain.stdout)

    path, modules = look(str(tmp_path))

    assert path == [*theirs[0], str(Path(joining.STARTUP).parents[2])]  # as for workers
    assert set(modules) - set(theirs[1]) <= {"sitecustomize"}


def test_another_sitecustomize_is_loaded_as_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['it was loaded'] = sys\n")

    _, modules = look(str(tmp_path))

    assert "it was loaded" in modules


@pytest.mark.parametrize("settings", ["", "no JSON", "{}"])
def test_settings_that_are_none_keep_nobody_from_importing(tmp_path: Path, settings: str) -> None:
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text("here = True\n")
    variables = {**joining.make_environment("/folder", None, str(tmp_path)), joining.SETTINGS_VARIABLE: settings}
    code = "import torch.distributed.distributed_c10d as module; print(module.here)"

    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (said.stdout, said.stderr) == ("True\n", "")


@pytest.mark.sample(1)  # one rule for all that is imported before
@pytest.mark.parametrize("before", ["", "import torch", "from lab.node import hooks; hooks.load_hooks()"])
def test_what_torch_makes_is_left_out_of_garbage_collections_of_forks(before: str) -> None:
    count = "print(gc.get_freeze_count() > 10 * len(gc.get_objects()))"
    code = f"{before}\nimport gc\nfrom lab.node import warm\nwarm.import_torch()\n{count}"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_an_agent_loads_its_features_without_torch() -> None:
    code = "import sys\nfrom lab.node import hooks\nhooks.load_hooks()\nprint('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
