"""`lab export`: write a job for Kubeflow Trainer, JobSet, or Slurm that runs a scenario without the lab.

Examples:
  lab export trainjob train.yaml --image pytorch/pytorch:latest | kubectl create -f -
  lab export jobset train.yaml --image pytorch/pytorch:latest -o train-job.yaml
  lab export sbatch train.yaml -o train.sbatch && sbatch train.sbatch

Standard error lists the keys of the scenario that the job lacks. With --record, `lab record` runs on every node, so
`lab` has to be installed in the image or on the machines; `lab import records` then shows the verdict.
"""

from __future__ import annotations

import base64
import math
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.errors import UsageError
from lab.frozen import Frozen
from lab.node.contents import EXECUTABLE, read_entries
from lab.plan.plan import Plan, PlanOptions, make_plan, shape_for, unmade_cluster
from lab.report.sanitize import sanitize_text
from lab.run.snapshot import read_snapshot
from lab.spec.declare import dump_keys
from lab.spec.keys import STARTED_BY
from lab.spec.launching import LAB, Launching
from lab.spec.scenario import Expect, Scenario
from lab.words import format_bytes, format_count, join_words

_TORCHRUN = "torchrun"
_RESOURCES = ("--image", "--cpus", "--memory", "--gpus")
_MOST_BYTES = 1 << 20
"""Kubernetes' limit for the data of a ConfigMap."""
_MOST_NAMED = 3
_LONGEST_NAME = 40
"""Names of pods add the role, two numbers, and a suffix, and have at most 63 characters."""
_KEPT = {"name", "learn", "script", "folder", "nodes", "nproc_per_node", "args", "env", "timeout", "resources", "image",
         "cold", "one_user"}  # fmt: skip
"""Keys of scenarios that the job has, or that make no difference to it."""
_WHY = {
    "network": "only the lab changes links",
    "faults": "only the lab injects faults",
    "requirements": "install these packages in the image or on the machines",
    "data": "mount these folders in the job, and set LAB_DATA",
    "volumes": "mount these folders in the job",
    "expect": "nothing checks it without the lab",
    "outputs": "files stay where the job writes them",
    "backend": "PyTorch chooses the backend that the script does not name",
    "launcher": "the job has a fixed number of nodes",
}
_ELSE = "only the lab does this"
_START_S, _GRACE_S = 60, 30
"""Time for torchrun to start, which does not count, as in the lab; time for ranks to end after the time limit."""
_STALL_S = 300
"""The default of `lab record --stall`."""
_PORT, _FIRST_PORT, _PORTS = 29500, 28411, 4096
"""Of the rendezvous in a pod; of those of Slurm's jobs, which may share a machine."""
_CLAIM_PATH, _FILES_PATH = "/records", "/scenario"
_RECORD = "records"
_RUNTIME, _ROLE = "torch-distributed", "node"
"""The runtime of Kubeflow Trainer for PyTorch, and its name for a job and its container."""


def add_arguments(parser: Parser) -> None:
    """Declare the arguments."""
    parser.usage = "lab export trainjob|jobset|sbatch SCENARIO [options] [-- SCRIPT ARGUMENTS]"
    about, kinds = "trainjob, jobset (or kubernetes), or sbatch (or slurm)", {"kubernetes": "jobset", "slurm": "sbatch"}
    parser.add_argument(
        "kind", choices=[*_WRITERS], type=lambda kind: kinds.get(kind, kind), metavar="KIND", help=about
    )
    about = "a scenario (YAML), a script, or a lesson as @NAME"
    shared.add_options(parser, "scenario", type=Path, help=about, complete="scenarios")
    parser.set_defaults(rest=[])
    shared.add_options(parser, "--nodes", "--nproc-per-node", "--timeout", "--env", *_RESOURCES)
    about = "the folder in the image or on the machines that has the scenario's files, instead of a ConfigMap"
    parser.add_argument("--folder", metavar="PATH", help=about)
    about = "record every node: into this folder, or into this PersistentVolumeClaim, which all pods mount"
    parser.add_argument("--record", metavar="WHERE", help=about)
    about = "write the job to this file, or into this folder (default: standard output)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=about)


def run(arguments: Any) -> int:
    """Write the job; needs no engine."""
    scenarios = shared.named_scenarios([arguments.scenario], arguments.rest, dict(arguments.env))
    if len(scenarios) != 1:
        why = f"{arguments.scenario} has {len(scenarios)} scenarios, but a job runs one"
        raise UsageError(why, "name one of its files")
    job = plan_job(scenarios[0], PlanOptions(**shared.field_values(PlanOptions, arguments)), vars(arguments))
    write, suffix = _WRITERS[arguments.kind]
    text = write(job)
    for key, why in job.left_out.items():
        sys.stderr.write(f"left out: {key}: {why}\n")
    if not job.folder:
        files = format_count(sum(1 for _ in _files(job.scenario)), "file")
        packed = f"packed: {files} of {job.scenario.shipped} into the ConfigMap; .labignore leaves files out"
        sys.stderr.write(f"{sanitize_text(packed)}\n")
    if arguments.output is None:
        print(sanitize_text(text, colours=False) if sys.stdout.isatty() else text, end="")
        return 0
    path = arguments.output / f"{job.name}{suffix}" if arguments.output.is_dir() else arguments.output
    shared.write_text(path, text)
    shared.print_sanitized(f"wrote {path}")
    return 0


class Job(Frozen):
    """A scenario as a job without the lab."""

    name: str
    """Valid for Kubernetes."""
    plan: Plan
    image: str | None
    cpus: float | None
    memory_bytes: int | None
    gpus: int
    env: Mapping[str, str]
    folder: str
    """That has the files where the job runs; empty: a ConfigMap has them."""
    record: str
    """Where to record; empty: nowhere. `_sbatch` and `_start` make it a word of a shell."""
    left_out: Mapping[str, str]
    """Keys of the scenario that the job lacks, each with the reason."""

    @property
    def scenario(self) -> Scenario:
        """What it runs."""
        return self.plan.scenario

    def torchrun(self, node: str, address: str, port: str) -> str:
        """Return the line of a shell that runs the ranks of one node within the time limit.

        Args:
            node: variable with the number of the node.
            address: of node 0; empty: variables of torchrun have the address and the size of the job.
            port: of the rendezvous store there.
        """
        words, plan, restarts = [_TORCHRUN], self.plan, self.scenario.launcher.max_restarts
        if address:
            words += [f"--nnodes={plan.nnodes}", f"--nproc-per-node={plan.nproc_per_node}"]
        if restarts:  # a static rendezvous cannot restart the ranks of other nodes
            where = f"{address or '$PET_MASTER_ADDR'}:{port}"
            words += ["--rdzv-backend=c10d", f'--rdzv-endpoint="{where}"', f"--rdzv-id={self.name}"]
            words += [f"--max-restarts={restarts}"]
        elif address:
            words += [f'--node-rank="${node}"', f'--master-addr="{address}"', f'--master-port="{port}"']
        args = (word.replace("$", "$$") for word in self.scenario.args)  # torchrun replaces ${local_rank} and $$
        script = shlex.join([self.scenario.script_path, *args])
        record = self._record_words(node) if self.record else ""
        limit = f"timeout -k {_GRACE_S} {math.ceil(plan.timeout_s + _START_S)}"
        return f"exec {limit} {record}{' '.join(words)} {script}"

    def _record_words(self, node: str) -> str:
        values = self.plan.trace.values
        limit = f" --trace-values {values}" if values is not None else ""
        stall_s = math.ceil(min(_STALL_S, self.plan.timeout_s / 4))  # so that a hang is on record before the time limit
        return f"lab record --stall {stall_s}s{limit} -o {self.record}/node${node} -- "

    @property
    def paths(self) -> str:
        """The line of a shell that lets ranks import the packages of the scenario's folder; mostly empty."""
        needs = "/" in self.scenario.script_path
        return 'export PYTHONPATH="$PWD:$PWD/src${PYTHONPATH:+:$PYTHONPATH}"\n' if needs else ""


def plan_job(scenario: Scenario, options: PlanOptions, asked: Mapping[str, Any]) -> Job:
    """Return a scenario as a job.

    Args:
        scenario: what to run.
        options: may override its size and time limit.
        asked: arguments of the command.

    Raises:
        UsageError: no job can run it.
    """
    launcher = STARTED_BY.get(scenario.backend or "", scenario.launcher.name)
    if launcher not in (LAB, _TORCHRUN):
        why = f"{scenario.name} needs the launcher {launcher}, but a job starts its ranks with torchrun"
        raise UsageError(why, "remove `launcher` and `backend` from the scenario, or run it with `lab run`")
    wishes = {name: asked[name] for name in ("image", "cpus", "memory_bytes", "gpus") if asked[name]}
    shape = shape_for(scenario, options, wishes)
    bare = replace(scenario, extra={}, expect=Expect(), launcher=Launching(_TORCHRUN))
    plan = make_plan(bare, scenario.name, unmade_cluster(shape, "export"), replace(options, cold=True))
    keys = dump_keys(scenario).keys() - _KEPT - {"trace"}
    keys -= {"launcher"} if scenario.launcher.least_nodes(plan.nnodes) == plan.nnodes else set()
    keys -= {"backend"} if (scenario.backend == "gloo") == (not shape.gpus) else set()
    name = re.sub(r"[^a-z0-9]+", "-", scenario.name.lower()).strip("-")[:_LONGEST_NAME].rstrip("-")
    name = name if name[:1].isalpha() else f"job-{name}".rstrip("-")
    is_slurm = asked["kind"] == "sbatch"
    record = str(Path(asked["record"]).absolute()) if asked["record"] and is_slurm else asked["record"] or ""
    return Job(
        name=name,
        plan=replace(plan, scenario=scenario),
        **{field: getattr(shape, field) for field in ("image", "cpus", "memory_bytes", "gpus")},
        env={**({"OMP_NUM_THREADS": "1"} if plan.world_size > 1 else {}), **scenario.env},
        folder=asked["folder"] or (str(scenario.shipped.absolute()) if is_slurm else ""),
        record=record,
        left_out={key: _WHY.get(key, _ELSE) for key in sorted(keys)},
    )


# -- Slurm


def _sbatch(job: Job) -> str:
    """Return a script for sbatch."""
    plan = job.plan
    cpus = f"--cpus-per-task={math.ceil(job.cpus)}" if job.cpus else ""
    wishes = [f"--job-name={job.name}", f"--nodes={plan.nnodes}", "--ntasks-per-node=1", cpus]
    wishes += [f"--mem={math.ceil(job.memory_bytes / 2**20)}M"] if job.memory_bytes else []
    wishes += [f"--gpus-per-node={job.gpus}"] if job.gpus else []
    wishes += [f"--time={math.ceil((plan.timeout_s + _GRACE_S + _START_S) / 60)}"]
    mounts = [*filter(None, (job.folder, job.record))]
    if job.image and (path := next((path for path in mounts if re.search("[,:]", path)), None)) is not None:
        raise UsageError(f"cannot mount {path} in an image: pyxis allows no comma or colon in a path", "rename it")
    container = [f"--container-image={job.image}", f"--container-mounts={','.join(f'{m}:{m}' for m in mounts)}"]
    srun = ["srun", "--kill-on-bad-exit=1", cpus, *(container if job.image else ())]
    job = replace(job, record=f"{shlex.quote(job.record)}/$SLURM_JOB_ID") if job.record else job
    program = f"cd {shlex.quote(job.folder)} || exit 1\n{job.paths}"
    program += job.torchrun("SLURM_NODEID", "$JOB_ADDRESS", "$JOB_PORT")
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {wish}" for wish in wishes if wish),
        *(f"export {shlex.join([f'{name}={value}'])}" for name, value in job.env.items()),
        # the first machine runs this script; its name may have no address
        """JOB_ADDRESS=$(scontrol --oneliner show node "$SLURMD_NODENAME" | sed 's/.* NodeAddr=\\([^ ]*\\).*/\\1/')""",
        f"JOB_PORT=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))",
        "export JOB_ADDRESS JOB_PORT",
        f"{shlex.join(filter(None, srun))} sh -c {shlex.quote(program)}",
    ]
    return "\n".join([*lines, ""])


# -- Kubernetes


def _jobset(job: Job) -> str:
    """Return a JobSet of one indexed job, and the ConfigMap with its files."""
    if job.image is None:
        raise UsageError("a JobSet needs an image with torch", "name it: --image pytorch/pytorch:latest")
    address = f"{job.name}-{_ROLE}-0-0.{job.name}"
    volumes, mounts = _volumes(job)
    container = {"name": _ROLE, "image": job.image, "command": _start(job, address), "env": _variables(job)}
    containers = [{**container, "resources": _limits(job), "volumeMounts": mounts}]
    pod = {"restartPolicy": "Never", "containers": containers, "volumes": volumes}
    count = {"completionMode": "Indexed", "completions": job.plan.nnodes, "parallelism": job.plan.nnodes}
    template = {"spec": {**count, "backoffLimit": 0, "template": {"spec": pod}}}
    network = {"enableDNSHostnames": True, "subdomain": job.name}  # pods have names in DNS, as `address`
    spec = {"network": network, "replicatedJobs": [{"name": _ROLE, "replicas": 1, "template": template}]}
    return _documents(job, {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}, spec)


def _trainjob(job: Job) -> str:
    """Return a TrainJob, and the ConfigMap with its files."""
    size = {"numNodes": job.plan.nnodes, "numProcPerNode": job.plan.nproc_per_node, "image": job.image}
    trainer = {**size, "command": _start(job, ""), "env": _variables(job), "resourcesPerNode": _limits(job)}
    volumes, mounts = _volumes(job)
    pod = {"volumes": volumes, "containers": [{"name": _ROLE, "volumeMounts": mounts}]}
    jobs = [{"name": _ROLE, "template": {"spec": {"template": {"spec": pod}}}}]
    patch = {"manager": "lab/export", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    patches = {"runtimePatches": [patch]} if volumes else {}
    spec = {"runtimeRef": {"name": _RUNTIME}, "trainer": trainer, **patches}
    return _documents(job, {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}, spec)


_WRITERS = {"trainjob": (_trainjob, ".yaml"), "jobset": (_jobset, ".yaml"), "sbatch": (_sbatch, ".sbatch")}
"""By kind: what writes the job, and the end of its file's name."""


def _start(job: Job, address: str) -> list[str]:
    """Return the command of a pod. It copies the files, because scripts may write next to them."""
    folder = shlex.quote(job.folder or f"/tmp/{job.name}")
    copy = "" if job.folder else f"mkdir -p {folder} && cp -RL {_FILES_PATH}/* {folder} || exit 1\n"
    job = replace(job, record=f"{_CLAIM_PATH}/{job.name}") if job.record else job
    line = job.torchrun("JOB_COMPLETION_INDEX", address, str(_PORT))
    return ["sh", "-c", _escaped(f"{copy}cd {folder} || exit 1\n{job.paths}{line}")]


def _escaped(text: str) -> str:
    """Return a text in which Kubernetes replaces nothing."""
    return text.replace("$", "$$") if re.search(r"\$[$(]", text) else text


def _variables(job: Job) -> list[dict[str, str]]:
    return [{"name": name, "value": _escaped(value)} for name, value in job.env.items()]


def _limits(job: Job) -> dict[str, Any]:
    limits = {"cpu": f"{round(job.cpus * 1000)}m"} if job.cpus else {}
    limits |= {"memory": str(job.memory_bytes)} if job.memory_bytes else {}
    limits |= {"nvidia.com/gpu": str(job.gpus)} if job.gpus else {}
    return {"limits": limits} if limits else {}


def _volumes(job: Job) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the volumes of a pod, and where its container has them."""
    volumes: list[dict[str, Any]] = []
    if not job.folder:
        items = [{"key": key, "path": path, "mode": mode} for key, path, mode in _files(job.scenario)]
        volumes.append({"name": "files", "configMap": {"name": f"{job.name}-files", "items": items}})
    if job.record:
        volumes.append({"name": _RECORD, "persistentVolumeClaim": {"claimName": job.record}})
    paths = {"files": _FILES_PATH, _RECORD: _CLAIM_PATH}
    return volumes, [{"name": one["name"], "mountPath": paths[one["name"]]} for one in volumes]


def _files(scenario: Scenario) -> Iterator[tuple[str, str, int | None]]:
    """Yield each file that the lab would ship: its key in a ConfigMap, its path, and its mode if it is executable."""
    snapshot = read_snapshot(scenario.shipped, scenario.data.values())
    for number, (path, entry) in enumerate(sorted(read_entries(snapshot.all_entries()).items())):
        if (scenario.shipped / path).is_file():
            key = re.sub(r"[^-._a-zA-Z0-9]", "-", path)
            yield path if key == path else f"{number}-{key}", path, 0o755 if entry.kind == EXECUTABLE else None


def _config_map(job: Job) -> dict[str, Any]:
    """Return the ConfigMap with the scenario's files.

    Raises:
        UsageError: they are too large.
    """
    paths = {key: job.scenario.shipped / path for key, path, _ in _files(job.scenario)}
    sizes = {path: path.stat().st_size for path in paths.values()}
    if (total := sum(sizes.values())) > _MOST_BYTES:
        most = sorted(((size, path.name) for path, size in sizes.items()), reverse=True)[:_MOST_NAMED]
        largest = join_words(f"{name} ({format_bytes(size)})" for size, name in most)
        why = f"{job.scenario.shipped} has {format_bytes(total)}, but a ConfigMap has at most 1 MiB"
        hint = "put the folder into the image and name it: --folder /path/in/image; or list files in .labignore"
        raise UsageError(f"{why}; the largest files: {largest}", hint)
    data, binary = dict[str, str](), dict[str, str]()
    for key, path in paths.items():
        content = path.read_bytes()
        try:
            data[key] = content.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(content).decode()
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{job.name}-files"}}
    return {**head, **({"data": data} if data else {}), **({"binaryData": binary} if binary else {})}


def _documents(job: Job, head: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return YAML of the job and its files, without empty fields."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write text of several lines as a block."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def block(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, block)
    made = _without_empty({**head, "metadata": {"name": job.name}, "spec": spec})
    documents = [made] if job.folder else [_config_map(job), made]
    text: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


def _without_empty(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _without_empty(value) for key, value in data.items() if value not in (None, [], {})}
    return [*map(_without_empty, data)] if isinstance(data, list) else data
