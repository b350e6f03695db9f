"""What every tier shares: which tests need which engine, what may be skipped, what is kept for the long run.

A test belongs to the tier of its folder: engines, foreign, docker, browser, crash, hostile; those in mpi/tests are the
tier mpi, and all others, whose folders are named as those of lab/, are the tier unit. One in tests/engines or
tests/hostile belongs to that of the engine it runs on too, local or docker.
`@pytest.mark.docker` on any other test says that it needs an engine too; what needs a Slurm is the tier slurm, and what
needs the Kubernetes of `dev/kube` the tier kubernetes.

Without an engine those are skipped, with the reason; in CI (CI=true) a skip is a failure, unless what is missing is
hardware, or takes long to build: a reason that begins with "needs GPU", "needs kernel", or "needs Kubernetes". What is
marked `long` runs with `--long` only. Of the cases of a test that is marked `sample(number)` so many run, others with
each commit, of the tests of a file that is marked `half` a half, and of most tests of both engines one; with `--long`
all of them do.

Of several processes that run tests, one has all of a group, and makes once what they share; groups are begun first.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

from lab.polling import poll_until
from tests.short import SHORT

if TYPE_CHECKING:
    import docker

ROOT = Path(__file__).resolve().parent.parent
collect_ignore = ["third_party"]  # a repository of somebody else, whose tests run where it is installed
TIERS = ("unit", "engines", "foreign", "docker", "mpi", "browser", "crash", "hostile")
FIRST = (
    "engines-docker", "hostile-docker", "engines-local", "site", "browser", "docker",
    "tests/features/pytest/test_recorded.py", "tests/features/recording/test_record.py", "equal-programs", "equal-uses",
    "tests/features/attach/test_attach.py",
)  # fmt: skip
"""Groups that take longest."""
ELSEWHERE = ("docker", "slurm", "kubernetes")
"""Markers of engines whose nodes are not processes of this machine, or for which something has to be started first."""
SAMPLED = "SAMPLED_COMMIT"
"""Variable with the commit that says which tests marked `sample` or `half` run."""
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
ENGINE = re.compile(r"(?<=[\[-])(?:docker|local)(?=[]-])")
"""The engine in the name of a test."""
ON_BOTH = ("tests/engines/contract/", "tests/engines/test_library.py", "tests/hostile/test_mischief.py")
"""Tests that each commit runs on both engines."""
HARDWARE = re.compile(r"^(?:Skipped: )?needs (?:a |an |the )?(?:GPU|kernel|Kubernetes)\b")


settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("long", max_examples=500, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes a run the long one."""
    parser.addoption("--long", action="store_true", help="run what is marked long too, and more examples of properties")


def pytest_configure(config: pytest.Config) -> None:
    """Take back what a shell in the background or nohup ignores: commands under test are sent these signals."""
    os.environ.setdefault(SAMPLED, commit())  # the processes of pytest-xdist have it from the first one
    gc.set_threshold(50_000, 20, 100)  # there are many objects, and few of them in circles
    settings.load_profile("long" if config.getoption("--long") else "quick")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def pytest_keyboard_interrupt() -> None:
    """Let the fixtures remove what they made without another interrupt, which pytest-xdist sends its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the collected tests: it would walk thousands of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the marker of its folder, and its group; leave out what is long, unless it was asked for."""
    for item in items:
        tier = tier_of(item.nodeid)
        if tier:
            item.add_marker(tier)
        if "docker_engine" in getattr(item, "fixturenames", ()):
            item.add_marker("docker")
        elsewhere = any(map(item.get_closest_marker, ELSEWHERE))
        if tier in ("engines", "hostile") and not elsewhere:
            item.add_marker("local")
        if elsewhere and item.get_closest_marker("local_first"):
            item.add_marker("long")
        if not item.get_closest_marker("xdist_group") and (group := group_of(item, tier)):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=when)
    if not config.getoption("--long"):
        left_out = {item for item in items if item.get_closest_marker("long")}
        named = any("::" in word or word.endswith(".py") for word in config.args)
        chosen = named or config.option.keyword or config.getoption("lf", False)
        if not chosen:
            left_out |= of_other_commits(item for item in items if item not in left_out)
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def of_a_sample(item: pytest.Item) -> str:
    """Return the name that cases of a test marked `sample` have in common."""
    return item.nodeid.partition("[")[0] if item.get_closest_marker("sample") else ""


def of_both_engines(item: pytest.Item) -> str:
    """Return the name that a test of both engines has on each of them, but for what each engine promises."""
    runs_on_both = tier_of(item.nodeid) in ("engines", "hostile") and not item.nodeid.startswith(ON_BOTH)
    return ENGINE.sub("", item.nodeid) if runs_on_both else ""


def of_halves(item: pytest.Item) -> str:
    """Return the file of a test that is marked `half`."""
    return item.nodeid.partition("::")[0] if item.get_closest_marker("half") else ""


RULES: tuple[tuple[Callable[[pytest.Item], str], Callable[[list[pytest.Item]], int]], ...] = (
    (of_a_sample, lambda ones: int(next(ones[0].iter_markers("sample")).args[0])),
    (of_both_engines, lambda ones: 1),
    (of_halves, lambda ones: (len(ones) + 1) // 2),
)
"""What tests have in common, and how many of these run with one commit."""


def of_other_commits(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that by one of the rules another commit tries."""
    left, left_out = [*items], set[pytest.Item]()
    for common, number in RULES:
        sets = defaultdict[str, list[pytest.Item]](list)
        for item in left:
            sets[common(item)].append(item)
        for name, ones in sets.items():
            if name:
                chosen = Random(f"{os.environ[SAMPLED]} {name}").sample(ones, min(number(ones), len(ones)))
                left_out |= {*ones} - {*chosen}
        left = [item for item in left if item not in left_out]
    return left_out


def commit() -> str:
    """Return the hash of the checkout's commit; empty if it is none of git's."""
    try:
        words = ["git", "-c", "safe.directory=*", "rev-parse", "HEAD"]  # CI is root, the checkout another user's
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def when(item: pytest.Item) -> int:
    """Where a test comes: groups first, one after the other; modules of unit tests last, which are short."""
    group = item.get_closest_marker("xdist_group")
    name = group.args[0] if group else ""
    if name in FIRST:
        return FIRST.index(name)
    if name == item.nodeid.partition("::")[0] and tier_of(name) == "unit":
        return len(FIRST) + 2
    return len(FIRST) + (not name)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to go on where pytest and pytest-xdist do not understand each other: each process would make all clusters.

    Raises:
        pytest.UsageError: the group of a test is not in its name.
    """
    if session.config.getoption("loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(
                    f"pytest {pytest.__version__} loses the groups that pytest-xdist gives to tests"
                )


def tier_of(nodeid: str) -> str:
    """Return the tier of a test's folder; empty if it is in none."""
    folders = nodeid.partition("::")[0].split("/")
    if folders[:2] == ["mpi", "tests"]:
        return "mpi"
    if folders[0] != "tests":
        return ""
    return folders[1] if folders[1] in TIERS else "unit"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe, which a test may close itself."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        with suppress(OSError):
            os.close(fd)


@pytest.fixture
def own_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock and no cluster is known, of any engine, but those that the test makes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for engine in ("LOCAL", "SLURM", "KUBERNETES"):
        monkeypatch.setenv(f"LAB_{engine}_HOME", str(tmp_path / engine.lower()))


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """An empty folder on a disk: other temporary ones may be in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def torch_stub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of local clusters that the test makes import a stub of torch: for scripts that do not import it."""
    if not request.config.getoption("--long"):
        before = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT / "tests" / "stub"), before))))


@pytest.fixture
def lab(engine: object, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process, on the test's engine: returns exit code, output, and errors."""
    from lab.cli.main import main

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def group_of(item: pytest.Item, tier: str) -> str:
    """With whom a test has to be in one process, where they share what is costly to make; empty: with nobody.

    Elsewhere each node of a cluster imports torch, and everywhere what a process's first training imports besides.
    """
    if "kept" in getattr(item, "fixturenames", ()):
        return item.nodeid.partition("::")[0]
    shared = [engine for engine in ELSEWHERE if item.get_closest_marker(engine)]
    if tier in ("engines", "hostile") and shared:
        return f"{tier}-{shared[0]}"
    for fixture in ("shaped", "small_cluster"):  # clusters of one shape each
        if fixture in getattr(item, "fixturenames", ()):
            return f"{tier}-{fixture}"
    if tier == "engines" and (item.get_closest_marker("trains") or "lesson" in getattr(item, "fixturenames", ())):
        return "engines-local"
    if tier == "unit":  # what a module makes once, and less for pytest-xdist to count
        return item.nodeid.partition("::")[0]
    return tier if tier in ("docker", "browser") else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long each tier took: from its first test's beginning to its last one's end, and all tests added up."""
    reports = [
        report
        for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed", "")
        for report in terminalreporter.stats.get(outcome, ())
        if isinstance(report, pytest.TestReport)
    ]
    for tier in TIERS:
        mine = [report for report in reports if tier_of(report.nodeid) == tier]
        if mine:
            took_s = max(report.stop for report in mine) - min(report.start for report in mine)
            tests, added_s = len({report.nodeid for report in mine}), sum(report.duration for report in mine)
            terminalreporter.line(f"{tier:8} {tests:5} tests in {took_s:6.1f} s (added up {added_s:.1f} s)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs an engine where none answers."""
    if item.get_closest_marker("docker") and (reason := engine_missing()):
        pytest.skip(reason)
    if item.get_closest_marker("slurm") and (reason := slurm_missing()):
        pytest.skip(reason)
    if item.get_closest_marker("kubernetes") and (reason := kubernetes_missing()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, turn a skipped test into a failed one."""
    return forbid_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI, turn a skipped module into an error."""
    return forbid_skip((yield))


def forbid_skip(report: Report) -> Report:
    """Return the report; failed, if it says skipped for a reason that CI does not accept."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not HARDWARE.match(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped, which CI does not accept: {reason.removeprefix('Skipped: ')}"
    return report


@lru_cache(maxsize=1)
def engine_missing() -> str:
    """Return why no Docker engine can be used; empty if one answers."""
    import docker

    try:
        client = docker.from_env(timeout=20)
        client.ping()
        client.close()
    except docker.errors.DockerException as error:
        return f"no Docker engine answers ({' '.join(str(error).split())[:120]}); start one, or as root run dev/engine"
    return ""


@lru_cache(maxsize=1)
def slurm_missing() -> str:
    """Return why no Slurm can be used; empty if one answers. One that starts is waited for."""
    if starts := os.environ.get("SLURM_STARTS"):
        poll_until(Path(starts).exists, 150)
    try:
        said = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, timeout=20, check=False)
        ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return "Slurm's commands are not here; as root run `dev/slurm up`"
    return (
        "" if "is UP" in ping.stdout else f"no controller of {said.stdout.strip()} answers; as root run `dev/slurm up`"
    )


KUBE_CONFIG = Path(os.environ.get("KUBE_BASE", "/var/tmp/lab-kube")) / "run" / "admin.conf"
"""Of the Kubernetes of `dev/kube`; no other one is touched."""


@lru_cache(maxsize=1)
def kubernetes_missing() -> str:
    """Return why there is no Kubernetes of `dev/kube`; empty if it answers. One that starts is waited for."""
    if starts := os.environ.get("KUBE_STARTS"):
        poll_until(Path(starts).exists, 500)
    if not KUBE_CONFIG.exists():
        return "needs Kubernetes: as root run `dev/kube build`, which takes 20 minutes, and then `dev/kube up`"
    argv = ["kubectl", f"--kubeconfig={KUBE_CONFIG}", "--request-timeout=20s", "get", "--raw", "/readyz"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return f"the Kubernetes of dev/kube does not answer: {done.stderr.strip()}" if done.returncode else ""


@pytest.fixture(scope="session")
def docker_engine() -> Generator[docker.DockerClient]:
    """A client of the Docker engine; skips the test where none answers."""
    if reason := engine_missing():
        pytest.skip(reason)
    import docker

    client = docker.from_env(timeout=120)
    yield client
    client.close()


@pytest.fixture(scope="session")
def node_image(docker_engine: docker.DockerClient) -> str:
    """Name of the default node image, built if it is missing."""
    from lab.engine.docker.connection import Connection
    from lab.engine.docker.image import DEFAULT_IMAGE, ensure_image

    return ensure_image(Connection(), DEFAULT_IMAGE, print).name


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip finds."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture(scope="session")
def person() -> Iterator[None]:
    """A person whose locks and local clusters are not those of whoever runs the tests."""
    home = tempfile.mkdtemp(prefix="lab-", dir=SHORT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", f"{home}/state")
        patch.setenv("LAB_LOCAL_HOME", f"{home}/local")
        patch.setenv("LAB_SLURM_HOME", f"{home}/slurm")
        patch.setenv("LAB_SLURM_SHARED", f"{home}/seen")
        patch.setenv("LAB_KUBERNETES_HOME", f"{home}/pods")
        patch.setenv("LAB_KUBERNETES_SHARED", "lab-shared")
        patch.setenv("KUBECONFIG", str(KUBE_CONFIG))
        yield
    shutil.rmtree(home)
