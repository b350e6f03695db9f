"""Folders of this machine that ranks read, by name and at the same place on every engine."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, LabError, Result
from tests.engines.conftest import written
from tests.golden import golden

Run = Callable[..., Result]

SCRIPT = """\
import os
from lab import note
folder = os.path.join(os.environ["LAB_DATA"], "mnist")
note("names", sorted({*os.listdir(folder)} - {"new.txt"}))
note("text", open(os.path.join(folder, "a.txt")).read())
note("shipped", os.path.exists("mnist"))
try:
    open(os.path.join(folder, "new.txt"), "w").close()
    note("wrote", True)
except OSError:
    note("wrote", False)
"""


@pytest.mark.usefixtures("torch_stub")
def test_ranks_read_a_folder_by_its_name_and_it_is_not_shipped(engine: str, tmp_path: Path) -> None:
    script = written(tmp_path / "s", SCRIPT)
    scenario = script.with_suffix(".yaml")
    scenario.write_text("script: main.py\nnodes: 1\nnproc_per_node: 2\ndata: {mnist: mnist}\n")
    (tmp_path / "s" / "mnist").mkdir()
    (tmp_path / "s" / "mnist" / "a.txt").write_text("here")
    with open(tmp_path / "s" / "mnist" / "large.bin", "wb") as file:
        file.truncate(80 << 20)
    cluster = Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine=engine)  # type: ignore[arg-type]

    result = cluster.run(scenario, runs=tmp_path / "runs")

    assert result.passed, result.reason
    assert len(result.ranks) == 2
    for rank in result.ranks:
        assert (rank.notes["names"], rank.notes["text"], rank.notes["shipped"]) == (
            ["a.txt", "large.bin"],
            "here",
            False,
        )
        assert rank.notes["wrote"] is (engine == "local")
    assert (tmp_path / "s" / "mnist" / "large.bin").exists()
    assert result.outputs == ()


@pytest.mark.local_first
def test_a_cluster_without_the_data_is_refused_and_one_that_has_it_is_not(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    script = written(tmp_path / "s", "import os\nassert 'LAB_DATA' not in os.environ")
    scenario = script.with_suffix(".yaml")
    scenario.write_text("script: main.py\ndata: {own: .}\n")

    assert run(script, nodes=1).passed
    with pytest.raises(LabError) as refused:
        cluster.run(scenario, runs=tmp_path / "runs")

    assert refused.value.exit_code == 2
    assert golden(1, os.path.realpath(tmp_path / "s")) in refused.value.message


@pytest.mark.local_first
def test_a_module_that_is_not_there_is_told_with_the_way_to_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    absent = run(written(tmp_path / "absent", "import labtestnone"), nodes=2)
    own = run(written(tmp_path / "own", "import mine"), nodes=2)

    assert golden(1) in absent.reason.replace("; so did rank 0", "").replace("; so did rank 1", "")
    assert "`requirements:`" in absent.reason
    assert golden(2, tmp_path / "mine.py", tmp_path / "own") in own.reason
    assert "requirements" not in own.reason
