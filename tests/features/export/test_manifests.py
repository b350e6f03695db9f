"""`lab export`: jobs for Kubeflow Trainer, JobSet, and Slurm."""

from __future__ import annotations

import base64
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cli.main import main
from tests.golden import golden

pytestmark = pytest.mark.unit
SCENARIO = """
script: train.py
nodes: 3
nproc_per_node: 2
args: [--lr, 0.1, "it's $(HOME) $$ $rank"]
env: {COLOR: 'dark $(RED)'}
timeout: 2m
resources: {cpus: 1.5, memory: 1GiB, gpus: 2}
faults: [{kill: node1, when: {rank: 1, op: all_reduce}}]
expect: {verdict: failed}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario, a module in a folder below, and a file that is no text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "part.py").write_text("x = 1\n")
    (tmp_path / "train.py").write_text("import pkg.part\n")
    (tmp_path / "blob").write_bytes(b"\xff\0")
    (tmp_path / "Train_1.yaml").write_text(SCENARIO)
    return tmp_path


def exported(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    assert main(["export", *words]) == 0
    return [*yaml.safe_load_all(capsys.readouterr().out)]


def as_kubelet(text: str, variables: dict[str, str]) -> str:
    """Replace `$(NAME)` and `$$` as Kubernetes does."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda one: "$" if one[0] == "$$" else variables.get(one[1], one[0]), text)


def test_a_jobset_runs_an_indexed_job_whose_first_pod_has_the_store(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, job = exported(capsys, "jobset", "Train_1.yaml", "--image", "torch:1", "--record", "claim")

    assert (files["kind"], files["metadata"]["name"]) == ("ConfigMap", "train-1-files")
    assert base64.b64decode(files["binaryData"]["blob"]) == b"\xff\0"
    assert (job["apiVersion"], job["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (replicated,) = job["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]
    assert [spec[key] for key in ("completionMode", "completions", "parallelism", "backoffLimit")] == [
        *("Indexed", 3, 3, 0)
    ]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    limits = {"cpu": "1500m", "memory": str(2**30), "nvidia.com/gpu": "2"}
    assert (container["image"], container["resources"]["limits"]) == ("torch:1", limits)
    variables = {one["name"]: as_kubelet(one["value"], {"RED": "no", "HOME": "no"}) for one in container["env"]}
    assert variables == {"OMP_NUM_THREADS": "1", "COLOR": "dark $(RED)"}
    volumes = {one["name"]: one for one in pod["volumes"]}
    paths = {one["path"]: files["data"].get(one["key"]) for one in volumes["files"]["configMap"]["items"]}
    assert (paths["pkg/part.py"], paths["train.py"], paths["blob"]) == ("x = 1\n", "import pkg.part\n", None)
    assert volumes["records"]["persistentVolumeClaim"] == {"claimName": "claim"}
    assert {one["name"]: one["mountPath"] for one in container["volumeMounts"]} == {
        "files": "/scenario",
        "records": "/records",
    }
    shell, option, program = container["command"]
    assert (shell, option) == ("sh", "-c")
    last = shlex.split(as_kubelet(program, {"HOME": "no"}).splitlines()[-1])
    recorder = ["lab", "record", "--stall", "30s", "-o", "/records/train-1/node$JOB_COMPLETION_INDEX", "--"]
    assert last[: 5 + len(recorder)] == ["exec", "timeout", "-k", "30", "180", *recorder]
    assert last[5 + len(recorder) :] == [
        *("torchrun", "--nnodes=3", "--nproc-per-node=2", "--node-rank=$JOB_COMPLETION_INDEX"),
        *("--master-addr=train-1-node-0-0.train-1", "--master-port=29500"),
        *("train.py", "--lr", "0.1", "it's $$(HOME) $$$$ $$rank"),  # torchrun replaces $$
    ]


def test_a_trainjob_leaves_the_rendezvous_to_its_operator(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, job = exported(capsys, "trainjob", "Train_1.yaml", "--nodes", "4")

    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    trainer = job["spec"]["trainer"]
    assert job["spec"]["runtimeRef"] == {"name": "torch-distributed"}
    assert (trainer["numNodes"], trainer["numProcPerNode"], "image" in trainer) == (4, 2, False)
    assert " torchrun train.py " in trainer["command"][2]
    (patch,) = job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert replicated["name"] == pod["containers"][0]["name"] == "node"
    assert pod["volumes"][0]["configMap"]["name"] == files["metadata"]["name"]


def test_files_of_the_image_need_no_configmap(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = exported(capsys, "trainjob", "train.py", "--folder", "/opt/my code", "--", "--lr", "1")

    assert "runtimePatches" not in job["spec"]
    program = job["spec"]["trainer"]["command"][2]
    assert program.splitlines()[0] == "cd '/opt/my code' || exit 1"
    assert program.endswith("torchrun train.py --lr 1")


def test_restarts_need_a_rendezvous_that_all_nodes_share(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "again.yaml").write_text("script: train.py\nnodes: 2\nlauncher: {torchrun: {max_restarts: 3}}\n")
    _, job = exported(capsys, "trainjob", "again.yaml")

    words = job["spec"]["trainer"]["command"][2]
    assert '--rdzv-backend=c10d --rdzv-endpoint="$PET_MASTER_ADDR:29500"' in words
    assert "--max-restarts=3" in words


def test_a_package_below_the_folder_can_be_imported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "deep.yaml").write_text("script: pkg/part.py\nfolder: .\n")
    _, job = exported(capsys, "trainjob", "deep.yaml")

    assert 'export PYTHONPATH="$PWD:$PWD/src${PYTHONPATH:+:$PYTHONPATH}"' in job["spec"]["trainer"]["command"][2]


def test_a_script_for_slurm_asks_for_what_the_scenario_needs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sbatch", "Train_1.yaml", "-o", str(here), "--record", "kept"]) == 0

    assert capsys.readouterr().out.strip() == f"wrote {here}/train-1.sbatch"
    lines = (here / "train-1.sbatch").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("#SBATCH")] == [
        *("--job-name=train-1", "--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem=1024M"),
        *("--gpus-per-node=2", "--time=4"),
    ]
    assert "export 'COLOR=dark $(RED)'" in lines
    assert f"{here}/kept/$SLURM_JOB_ID/node$SLURM_NODEID -- torchrun" in lines[-1]


def test_no_name_of_a_folder_is_code_of_the_job(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sbatch", "Train_1.yaml", "--record", 'a $(touch b) "c']) == 0
    program = shlex.split(capsys.readouterr().out.partition("\nsrun ")[2])[-1]
    line = program.splitlines()[-1].replace("exec timeout", "printf '%s\\n'")
    known = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "1"}

    words = subprocess.run(["sh", "-c", line], env=known, capture_output=True, text=True, check=True).stdout

    assert f'{here}/a $(touch b) "c/7/node1' in words.splitlines()
    assert not (here / "b").exists()


def test_what_a_job_lacks_is_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = "requirements: [x]\nbackend: gloo\noutputs: false\nnetwork: {delay: 5ms}\n"
    (here / "more.yaml").write_text(SCENARIO + keys + "split_gpus: true\n")
    assert main(["export", "trainjob", "more.yaml"]) == 0

    *left_out, packed, _ = capsys.readouterr().err.split("\n")
    assert "\n".join([*left_out, ""]) == golden(1)
    assert packed.startswith("packed: ")
    assert f" files of {here} into the ConfigMap" in packed


def test_the_name_of_an_engine_means_its_kind_of_job(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "more.yaml").write_text(SCENARIO)
    assert main(["export", "slurm", "more.yaml"]) == 0
    assert capsys.readouterr().out.startswith("#!/bin/bash\n#SBATCH")
    assert main(["export", "jobse", "more.yaml"]) == 2
    assert "did you mean jobset?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "text", "words"),
    [
        (0, "script: train.py\n", ["jobset"]),
        (1, "script: train.py\nlauncher: mpirun\n", ["trainjob"]),
        (1, "script: train.py\nbackend: mpi\n", ["trainjob"]),
        (2, "script: train.py\nargs: ['{rank}']\n", ["trainjob"]),
    ],
)
def test_what_no_job_can_run_is_refused(
    number: int, text: str, words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "odd.yaml").write_text(text)

    assert main(["export", *words, "odd.yaml"]) == 2
    assert (golden(1), golden(2), golden(3))[number] in capsys.readouterr().err


def test_files_that_no_configmap_can_hold_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "big.bin").write_bytes(bytes(1 << 20))

    assert main(["export", "trainjob", "train.py"]) == 2
    assert golden(1, here) in capsys.readouterr().err


def test_a_folder_with_several_scenarios_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "other.yaml").write_text("script: train.py\n")

    assert main(["export", "sbatch", "."]) == 2
    assert golden(1) in capsys.readouterr().err


def test_a_path_that_pyxis_would_split_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sbatch", "train.py", "--image", "i", "--record", "/a,/etc:/etc"]) == 2
    assert golden(1) in capsys.readouterr().err


def test_a_terminal_gets_no_escapes_of_arguments(here: Path) -> None:
    arguments = ["train.py", "--", "\x1b]0;pwned\x07"]
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-c", "from lab.cli.main import run_program; run_program()", "export", "sbatch", *arguments]
    subprocess.run(argv, cwd=here, stdout=theirs, stderr=subprocess.DEVNULL, check=True)
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # so a terminal ends
        while data := os.read(ours, 1 << 16):
            printed += data
    os.close(ours)
    assert b"pwned" in printed
    assert b"\x1b" not in printed
