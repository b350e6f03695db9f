"""Run a program in several ways, record its steps, and compare them with those of the first way."""

from __future__ import annotations

import functools
import inspect
import io
import os
import struct
import subprocess
import tarfile
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.engine.ownership import default_name
from lab.engine.protocol import Announce
from lab.engine.select import select_engine
from lab.errors import Interrupted, LabError, UsageError
from lab.features.equal.compare import Comparer, Comparison, Difference, Recorded, read_lines_of, read_recorded
from lab.features.equal.on_node.steps import VARIABLE
from lab.features.suite.pool import hold_warm_cluster
from lab.frozen import Frozen
from lab.node.warm import PRELOAD, SLOW_MODULES
from lab.plan.plan import has_wishes, shape_for_all
from lab.record.read import Record
from lab.record.result import Expectation, Result
from lab.run.cluster_slot import ClusterSlot, WarmCluster, refuse_foreign_wishes, run_on_own_cluster
from lab.run.collect import Observer
from lab.run.options import Job, RunOptions
from lab.spec import kinds
from lab.spec.declare import key_field
from lab.spec.load import open_scenario
from lab.spec.scenario import Expect, Scenario, Tracing
from lab.words import format_count

_OTHER_ORDER = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""Variables with which PyTorch's libraries add numbers in another order: with other vector instructions."""
_LONGEST_NAME = 31
_MOST_RANKS = 64
_KEPT_KEYS = ("network", "requirements", "needs")
_COARSE = 0.05
"""Two runs of a program with a seed never differ by this part in their first step."""


class Way(Frozen):
    """One way to run a program."""

    title: str
    """Such as `2 ranks`."""
    scenario: Scenario
    ranks: int


class Runner:
    """Runs ways on a cluster of its own.

    Args:
        warm_cluster: the cluster.
        options: of the runs.
        announce: called with each line of progress.
    """

    def __init__(self, warm_cluster: WarmCluster, options: RunOptions, announce: Announce) -> None:
        self._warm_cluster, self._options, self._announce = warm_cluster, options, announce
        self._known = dict[tuple[Path, str, str], Recorded]()

    def record(self, way: Way, mode: str) -> Recorded:
        """Run one way and return what it recorded; the same way of a program runs once in each mode.

        Raises:
            UsageError: the run does not pass.
        """
        key = way.scenario.script, way.title, mode
        if key not in self._known:
            self._known[key] = self._record(way, mode)
        return self._known[key]

    def _record(self, way: Way, mode: str) -> Recorded:
        again = mode == "rounding"
        env = {**way.scenario.env, VARIABLE: mode, "OMP_NUM_THREADS": "1", **(_OTHER_ORDER if again else {})}
        scenario = replace(way.scenario, env=env, cold=way.scenario.cold or again)
        options = replace(self._options, nodes=way.ranks, nproc_per_node=1, trace=True, trace_values=0, fresh=True)
        which = {"record": "", "rounding": ", with another order of summation"}.get(mode, ", one step in detail")
        self._announce(f"running {way.title}{which}")
        if has_wishes(scenario):
            result = run_on_own_cluster(self._warm_cluster.slot, scenario, options, Observer(), None)
        else:
            result = self._warm_cluster.attempt(scenario, options, Observer()).complete()
        if result.exit_code == Interrupted.exit_code:
            raise Interrupted("the comparison was interrupted")
        if not result.passed or result.path is None:
            why = f"the run of {way.title} {result.verdict}: {result.reason}"
            raise UsageError(why, "compare a program that passes in each way")
        return read_recorded(Record(path=result.path))


@contextmanager
def runner_for(
    ways: Sequence[Way], engine: str, options: RunOptions, announce: Announce, asked: dict[str, Any]
) -> Iterator[Runner]:
    """Make a cluster that is large enough for each way, and remove it at the end.

    Raises:
        LabError: it cannot be made.
    """
    name = f"{default_name()[:_LONGEST_NAME]}-equal-{os.urandom(2).hex()}"
    chosen, why = select_engine(engine, name)
    if why:
        announce(why)
    slot = ClusterSlot(engine=chosen, name=name, asked=asked, announce=announce)
    for way in ways:
        refuse_foreign_wishes(way.scenario, chosen, asked, options)
    most = max(way.ranks for way in ways)
    shape = shape_for_all([way.scenario for way in ways], replace(options, nodes=most, nproc_per_node=1), asked)
    shape = replace(shape, env={**shape.env, PRELOAD: SLOW_MODULES[0]})  # of optimizers: each way has one
    with hold_warm_cluster(slot, shape, "equal", f"a comparison of {ways[0].scenario.name}") as warm_cluster:
        yield Runner(warm_cluster, options, announce)


def bare_scenario(scenario: Scenario) -> Scenario:
    """Return a scenario without expectations and faults: only its program counts."""
    extra = {name: value for name, value in scenario.extra.items() if name in _KEPT_KEYS}
    return replace(scenario, expect=Expect(), extra=extra, trace=Tracing())


def ways_of_ranks(scenario: Scenario, ranks: Sequence[int]) -> list[Way]:
    """Return a way for each number of ranks.

    Raises:
        UsageError: there are too few, too many, or the same twice.
    """
    if len(ranks) < 2 or len(set(ranks)) < len(ranks) or not all(1 <= one <= _MOST_RANKS for one in ranks):
        stated = ",".join(map(str, ranks))
        why = (
            f"--ranks: found {stated!r}; allowed: two or more different numbers from 1 to {_MOST_RANKS}, such as 1,2,4"
        )
        raise UsageError(why)
    bare = bare_scenario(scenario)
    return [Way(title=format_count(one, "rank"), scenario=bare, ranks=one) for one in ranks]


RecordWay = Callable[[Way, str], Recorded]
"""Runs a way in a mode of the recorder."""


def compare_ways(record: RecordWay, ways: Sequence[Way]) -> list[Comparison]:
    """Compare each way with the first one.

    Raises:
        UsageError: a run does not pass, or a script changed what the lab records.
    """
    first, *others = ways
    try:
        reference, again = record(first, "record"), record(first, "rounding")
        if (unsteady := _find_unsteady(reference, again, first)) is not None:
            return [unsteady]
        return [_compare(record, first, one, reference, again) for one in others]
    except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError, struct.error) as error:
        why = f"{first.title}: the recorded steps are damaged ({type(error).__name__}: {error})"
        raise UsageError(why, "compare a program that leaves its trace alone") from error


def _compare(record: RecordWay, first: Way, other: Way, reference: Recorded, again: Recorded) -> Comparison:
    titles = first.title, other.title
    comparer = Comparer(reference, record(other, "record"), again, titles)
    key, difference = comparer.compare()
    if key is not None and difference is not None and difference.what != "samples" and difference.step:
        where = f"locate:{key[0]}:{difference.step}"
        closer = Comparer(record(first, where), record(other, where), again, titles)
        _, closer_difference = closer.compare()
        comparer.other.problems += closer.reference.problems + closer.other.problems
        if closer_difference is not None and closer_difference.step == difference.step:
            difference = closer_difference
    return _make_comparison(comparer, difference)


def _make_comparison(comparer: Comparer, difference: Difference | None) -> Comparison:
    common = {*comparer.reference.keys()} & {*comparer.other.keys()}
    steps = len(common) if comparer.until is None else comparer.until
    problems = tuple(comparer.reference.problems + comparer.other.problems)
    known = {name: getattr(comparer, name) for name in ("tensors", "tolerance", "largest")}
    known |= {"before": comparer.titles[0], "after": comparer.titles[1], "later": len(common) - steps}
    return Comparison(steps=steps, difference=difference, problems=problems, **known)


def _find_unsteady(reference: Recorded, again: Recorded, way: Way) -> Comparison | None:
    """Return a comparison that says that two runs of the same way differ by more than rounding."""
    comparer = Comparer(reference, again, None, (way.title, f"{way.title}, again"), least=_COARSE)
    _, difference = comparer.compare()
    if difference is None or difference.step > 1 or difference.what == "steps":
        return None
    if difference.step and difference.what in ("optimizer state", "parameter"):
        return None
    what = "samples" if difference.what == "samples" else difference.name
    when = f"in step {difference.step}" if difference.step else "before the first step"
    why = "draws random numbers without a seed"
    why += "" if difference.step else ", or leaves memory uninitialized, as `to_empty` does"
    sentence = f"two runs of {way.title} differ {when}, in {what}: the script {why}"
    return _make_comparison(comparer, replace(difference, cause="no seed", sentence=sentence))


# -- commits


def split_commit(word: str) -> tuple[Path, str]:
    """Return the path and the commit of `train.py@HEAD~1`; the commit is empty if there is none."""
    path, sign, commit = word.rpartition("@")
    if not sign or not path or Path(word).exists() or word.startswith("@"):
        return Path(word), ""
    return Path(path), commit


def _git(folder: Path, *words: str) -> bytes:
    with UsageError.on_os_error("cannot run git", "install git, or name files without @COMMIT"):
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"git {words[0]} failed in {folder}: {lines[-1] if lines else done.returncode}")
    return done.stdout


def list_commits(path: Path, after: str, until: str) -> list[str]:
    """Return the commits after one until another, the oldest first."""
    lines = _git(path.parent, "rev-list", "--reverse", "--first-parent", f"{after}..{until or 'HEAD'}").decode()
    return lines.split()


def describe_commit(path: Path, commit: str) -> str:
    """Return the short name of a commit and its subject."""
    return _git(path.parent, "log", "-1", "--format=%h %s", commit).decode().strip()


def open_version(word: str, stack: ExitStack) -> Scenario:
    """Open a scenario or a script, of a commit if one is named; its files exist until the stack closes.

    Raises:
        UsageError: git does not know the commit, or the file is not in it.
    """
    path, commit = split_commit(word)
    if not commit:
        return open_scenario(path)
    top = Path(_git(path.parent, "rev-parse", "--show-toplevel").decode().strip())
    below = Path(os.path.abspath(path)).relative_to(top.resolve())
    data = _git(top, "archive", "--format=tar", commit)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-equal-")))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    if not (folder / below).exists():
        raise UsageError(f"{below} is not in commit {commit}", "name a commit that has the file")
    return open_scenario(folder / below)


def compare_programs(
    words: Sequence[str], open_one: Callable[[str, ExitStack], Scenario], ranks: Sequence[int], bisect: bool, **how: Any
) -> tuple[list[Comparison], str]:
    """Compare numbers of ranks of one program, or two versions; with `bisect`, find the first commit that differs.

    Returns:
        The comparisons, and the commit: empty without `bisect`, or if the versions are equal.
    """
    with ExitStack() as stack:
        scenarios = [open_one(word, stack) for word in words]
        if len(words) == 1:
            ways = ways_of_ranks(scenarios[0], ranks or (1, 2))
        elif words[0] == words[1]:
            raise UsageError(f"found {words[0]} twice; allowed: two versions, such as {words[0]}@HEAD~1 {words[0]}")
        else:
            sizes = [ranks[0] if ranks else (one.nodes or 1) * (one.nproc_per_node or 1) for one in scenarios]
            both = zip(words, scenarios, sizes, strict=True)
            ways = [Way(title=word, scenario=bare_scenario(one), ranks=size) for word, one, size in both]
        with runner_for(ways, **how) as runner:
            compared = compare_ways(runner.record, ways)
            if not bisect or compared[0].is_equal:
                return compared, ""
            path, good = split_commit(words[0])
            if not good:
                raise UsageError(
                    f"--bisect needs a commit that is right; found {words[0]}", f"name {path}@COMMIT first"
                )
            commits = list_commits(path, good, split_commit(words[1])[1])
            outcomes = dict[str, list[Comparison]]()

            def differs(commit: str) -> bool:
                word = f"{path}@{commit}"
                way = Way(title=word, scenario=bare_scenario(open_one(word, stack)), ranks=ways[0].ranks)
                outcomes[commit] = compare_ways(runner.record, [ways[0], way])
                return not outcomes[commit][0].is_equal

            at = bisect_left(commits, True, key=differs)
            if at == len(commits):
                return compared, "the working tree"
            return outcomes[commits[at]], describe_commit(path, commits[at])


# -- in scenarios and tests


class EqualTo(Frozen):
    """What a run has to be equal to."""

    ranks: int | None = key_field(None, kinds.whole_number(1, _MOST_RANKS), "ranks: 1", "not checked")
    """Number of ranks of the right run."""


class EqualKeys(Frozen):
    """What scenarios state about equality."""

    equal_to: EqualTo = key_field(EqualTo, example="equal_to: {ranks: 1}")
    """The run with which the program has to agree. The lab runs both again; see equal."""


def compare_ranks(
    scenario: Scenario, ranks: Sequence[int], engine: str = "auto", options: RunOptions | None = None, **asked: Any
) -> list[Comparison]:
    """Compare a scenario with several numbers of ranks on a cluster of its own; the first number is right."""
    ways = ways_of_ranks(scenario, ranks)
    with runner_for(ways, engine, options or RunOptions(), lambda _: None, asked) as runner:
        return compare_ways(runner.record, ways)


def judge_equal(stated: EqualTo, job: Job, _: Any, variables: Mapping[int, Any]) -> list[Expectation]:
    """Return the expectation of a run's scenario: that it computes what other numbers of ranks compute."""
    right = stated.ranks or 1
    size, expected = len(variables), f"what {format_count(right, 'rank')} computes"
    got = expected
    if size != right:
        try:
            options, shape = job.options_again(job.writer.path.parent), vars(job.cluster.shape)
            asked = {name: value for name, value in shape.items() if name not in ("nodes", "nproc_per_node")}
            compared = compare_ranks(job.plan.scenario, (right, size), job.engine.name, options, **asked)
            got = next((one.difference.sentence for one in compared if one.difference is not None), expected)
        except LabError as error:
            got = f"({error.message})"
    return [Expectation(what="equal_to", expected=expected, got=got, met=got == expected)]


def equals_for(scenario: Scenario, result: Result) -> Callable[..., None]:
    """Return `result.equals(ranks=1)`, which runs the scenario again and compares it."""

    def equals(*, ranks: int = 1) -> None:
        """Check that the run computes what another number of ranks computes.

        Raises:
            AssertionError: it does not; the message says where they differ first.
        """
        __tracebackhide__ = True
        size = len(result.ranks)
        _refuse_difference(compare_ranks(scenario, (ranks, size), result.engine) if ranks != size else [])

    return equals


def _refuse_difference(compared: Sequence[Comparison]) -> None:
    __tracebackhide__ = True
    if sentences := [f"{one.after}: {one.difference.sentence}" for one in compared if one.difference is not None]:
        raise AssertionError("; ".join(sentences))


def equal(*, ranks: Sequence[int] = (1, 2), **shape: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Have a test function train on each of these numbers of ranks, and fail if they compute something else.

    Args:
        ranks: numbers of ranks; the first one is right.
        shape: arguments of `lab.distributed`, such as `engine="local"`.
    """
    from lab.features.functions.distributed import distributed, remove_parameters, to_fill

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        def recorded(mode: str, arguments: Any, named: Any, rank: int, world_size: int, group: Any) -> Any:
            from labnode.features.equal.on_node import steps  # type: ignore[import-not-found]

            lines = steps.record_lines(mode)
            filled = {"rank": rank, "world_size": world_size, "group": group}
            function(*arguments, **named, **{name: value for name, value in filled.items() if name in wanted})
            steps.finish_steps()
            return lines

        wanted = function.__code__.co_varnames[: function.__code__.co_argcount]

        @functools.wraps(function)
        def on_each(*arguments: Any, **named: Any) -> None:
            __tracebackhide__ = True

            def record(way: Way, mode: str) -> Recorded:
                on_ranks: Callable[..., Any] = distributed(nodes=way.ranks, fresh=True, **shape)(recorded)
                return read_lines_of(dict(enumerate(on_ranks(mode, arguments, named))))

            scenario = Scenario(name=function.__name__, script=Path(function.__code__.co_filename))
            _refuse_difference(compare_ways(record, ways_of_ranks(scenario, ranks)))

        signature = inspect.signature(function)
        on_each.__signature__ = remove_parameters(signature, to_fill(signature))  # type: ignore[attr-defined]
        return on_each

    return decorate


def comparisons_text(compared: Sequence[Comparison], commit: str, paint: Callable[[str, str], str]) -> str:
    """Describe comparisons: a line for each, and how they were made."""
    lines = []
    for one in compared:
        if one.difference is None:
            lines.append(
                f"{paint('✔', 'green')} {one.after}: the same as {one.before} in {format_count(one.steps, 'step')} "
                f"({format_count(one.tensors, 'tensor')}, largest difference {one.largest:.1e})"
            )
            if one.later:
                later = format_count(one.later, "later step")
                lines.append(f"  not compared: {later}, in which rounding alone changes gradients too much")
        else:
            lines.append(f"{paint('✘', 'red')} {one.after}: {one.difference.sentence}")
        lines += [f"  not recorded completely: {problem}" for problem in dict.fromkeys(one.problems)]
    if tolerance := max((one.tolerance for one in compared), default=0.0):
        lines.append(
            f"tolerance: {tolerance:.1e} of a gradient, from two runs of {compared[0].before} with different orders of "
            "summation"
        )
    if commit:
        lines.append(f"first commit that differs: {commit}")
    return "\n".join(lines)
