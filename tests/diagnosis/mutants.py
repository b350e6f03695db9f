"""Scores the diagnosis of mutants: programs in which one rank does one thing differently, so that the truth is known.

    dev/score --mutants N [--seed S] [FOLDER | SCRIPT | SCENARIO ...]

Draws from the lessons, from `tests/foreign`, and from `tests/diagnosis/legal`, or from what is named. Each program runs
twice without a mutant; a mutant of it is drawn from what it did. `tests.diagnosis.truth` says what is right.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.explain import explain_run
from lab.engine.select import select_engine
from lab.errors import LabError
from lab.features.mutants.candidates import Candidates
from lab.features.mutants.mutate import (
    Baseline,
    Runner,
    is_equivalent,
    read_outcome,
    run_parallel,
    scratch_records,
    with_mutant,
)
from lab.plan.cluster import Shape
from lab.plan.plan import has_wishes
from lab.record.read import Record
from lab.run.options import RunOptions
from lab.spec.launching import LAB
from lab.spec.load import find_scenarios, open_scenario, scenario_from_script
from lab.spec.scenario import Scenario
from tests.diagnosis.marking import Answer, say_in_short, waited_and_never_entered
from tests.diagnosis.programs import read_program
from tests.diagnosis.truth import Truth, find_truth

ROOT = Path(__file__).parents[2]
JOBS = 3
"""Clusters at once: most of the time of a run that hangs is waiting."""
_MOST_RANKS = 4
_LONGEST_S = 20.0
"""A program that takes longer without a mutant is left out."""
_LEAST_PER_PROGRAM, _PER_PROGRAM = 2, 6
"""Mutants of a program that are drawn after each other: each program runs twice without a mutant first."""
_MOST_TURNS = 200
_BASE_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How right the diagnosis of one mutant is."""

    program: str
    family: str
    """Kind of script: the folder of the lesson, or `foreign`."""
    mutation: str
    mutant: str
    command: str
    equivalent: bool
    """Whether the run cannot be told from one without the mutant."""
    kind: bool
    rank: bool
    line: bool
    accused: tuple[int, ...] = ()
    false: tuple[str, ...] = ()
    seconds: float = 0.0
    truth: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return self.kind and self.rank and self.line and not self.accused and not self.false


@dataclass(frozen=True)
class Source:
    """A program that mutants are drawn from."""

    scenario: Scenario
    family: str

    @property
    def size(self) -> tuple[int, int]:
        """Nodes, and workers on each."""
        return RunOptions().size_of_run(self.scenario, Shape(nodes=1))

    @property
    def shown(self) -> str:
        path = self.scenario.source or self.scenario.script
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def list_sources(named: Sequence[str]) -> list[Source]:
    """The programs: those of this repository, or those that are named."""
    if not named:
        lessons = [*filter(None, map(_from_file, find_scenarios([ROOT / "scenarios"])))]
        foreign = [_from_script(path, "foreign") for path in sorted((ROOT / "tests/foreign/programs").glob("*.py"))]
        legal = [_from_script(path, "legal") for path in sorted((ROOT / "tests/diagnosis/legal").glob("*.py"))]
        return [*filter(_is_usable, lessons), *foreign, *legal]
    found = list[Source | None]()
    for path in map(Path, named):
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for one in files:
            found.append(_from_script(one, one.absolute().parent.name) if one.suffix == ".py" else _from_file(one))
    return [one for one in found if one is not None]


def _from_file(path: Path) -> Source | None:
    try:
        scenario = open_scenario(path)
    except LabError:  # of another machine, such as one with a GPU
        return None
    return Source(scenario, scenario.script.parent.name)


def _from_script(path: Path, family: str) -> Source:
    scenario = scenario_from_script(path.resolve(), _BASE_TIMEOUT_S)
    return Source(replace(scenario, nodes=read_program(path).nodes), family)


def _is_usable(source: Source) -> bool:
    """Whether it runs on a plain local cluster and is expected to pass, without faults of its own."""
    scenario, (nodes, workers) = source.scenario, source.size
    plain = scenario.launcher.name == LAB and not scenario.extra.keys() & {"faults", "network", "requirements", "needs"}
    fits = nodes * workers <= _MOST_RANKS and not has_wishes(scenario)
    return plain and fits and scenario.expect.verdict == "passed" and scenario.trace.on


@dataclass
class Score:
    """A score while it runs."""

    count: int
    seed: int
    kinds: Sequence[str] = ()
    by_task: dict[int, list[Mark]] = field(default_factory=dict)
    untold: list[str] = field(default_factory=list)
    """Why programs are left out."""
    legal: int = 0
    """Runs without a mutant."""
    false: list[str] = field(default_factory=list)
    """What was said of runs without a mutant and is not so."""

    @property
    def marks(self) -> list[Mark]:
        """The marks in the order of the draw, which the time that runs take does not change."""
        ordered = (one for number in sorted(self.by_task) for one in self.by_task[number])
        return [*{(one.program, one.mutant): one for one in ordered}.values()][: self.count]

    def tasks(self, sources: Sequence[Source]) -> Iterator[Any]:
        """Yield what each cluster does: a program, and some mutants of it."""
        random, number = Random(self.seed), 0
        each = min(_PER_PROGRAM, max(_LEAST_PER_PROGRAM, self.count // len(sources)))
        for turn in range(_MOST_TURNS):
            for source in random.sample(list(sources), len(sources)):
                if len(self.marks) >= self.count:
                    return
                number += 1
                yield partial(self._task, number, source, Random(f"{self.seed}/{turn}/{source.shown}"), each)

    def _task(self, number: int, source: Source, random: Random, each: int, runner: Runner) -> None:
        marks = self.by_task[number] = []
        try:
            baseline = runner.find_baseline(source.scenario)
        except LabError as error:
            self.untold.append(f"{source.shown}: {error.message}")
            return
        findings = explain_findings(baseline.result.path)
        if baseline.result.verdict != "passed" or (baseline.result.duration_s or 0) > _LONGEST_S:
            self.untold.append(f"{source.shown}: {baseline.result.verdict} without a mutant: {baseline.result.reason}")
            return
        self.legal += 1
        if source.family == "legal":
            allowed = read_program(source.scenario.script).allowed
            self.false += [
                f"{source.shown}: {one.sentence}"
                for one in findings
                if one.ranks and one.kind not in {*allowed, "straggler"}
            ]
        candidates = Candidates(baseline.events, self.kinds)
        known, tried = {(str(one.kind), frozenset(one.lines)) for one in findings}, set[str]()
        for _ in range(each):
            drawn = candidates.draw(random)
            if drawn is None:
                self.untold.append(f"{source.shown}: it has no event to change")
                return
            mutant, event = drawn
            if mutant.text in tried:
                continue
            tried.add(mutant.text)
            try:
                one = ask(source, baseline, find_truth(mutant, event, candidates), known, runner)
            except LabError as error:
                self.untold.append(f"{source.shown}, {mutant.text}: {error.message}")
                continue
            marks.append(one)
            print(f"{'✔' if one.right else '✘'} {source.shown}: {mutant.text}", file=sys.stderr, flush=True)


def explain_findings(path: Path | None) -> list[Any]:
    """The findings of a run that speak of a fault."""
    if path is None:
        return []
    record = Record(path=path)
    answer = Answer(verdict="", reason="", culprit=None, findings=explain_run(record, read_evidence(record)).findings)
    return answer.serious


def ask(source: Source, baseline: Baseline, truth: Truth, known: set[Any], runner: Runner) -> Mark:
    """Run a mutant, with more time if ranks were still working, and mark what the lab says."""
    limit_s, longest_s = baseline.limit_s, 3 * baseline.limit_s
    while True:
        result = runner.run(with_mutant(baseline.scenario, truth.mutant.text, limit_s))
        assert result.path is not None, result.reason
        record = Record(path=result.path)
        evidence = read_evidence(record)
        has_stayed = result.verdict not in ("hung", "timeout") or not is_moving(evidence, limit_s)
        if has_stayed or limit_s >= longest_s:
            break
        limit_s = longest_s
    explanation = explain_run(record, evidence)
    answer = Answer(
        verdict=result.verdict,
        reason=result.reason,
        culprit=result.culprit.rank if result.culprit is not None else None,
        findings=explanation.findings,
        seconds=round(result.duration_s or 0.0, 2),
    )
    equivalent = is_equivalent(baseline.outcomes, read_outcome(result), truth.mutant.ranks)
    size = f"--nodes {source.size[0]} --timeout {limit_s:.0f}s"
    command = f"lab run --engine local {size} {source.shown} --mutant '{truth.mutant.text}'"
    return mark(source, truth, answer, known, equivalent=equivalent, command=command)


def is_moving(evidence: Any, limit_s: float) -> bool:
    """Whether ranks still imported modules or made calls when the run was stopped."""
    ranks = evidence.trace.ranks.values()
    ends = [rank.calls[-1].end or rank.calls[-1].begin for rank in ranks if rank.calls]
    beginning = any(rank.started is None or "importlib._bootstrap" in rank.stack for rank in evidence.facts.ranks)
    return beginning or max(ends, default=0.0) > limit_s * 2 / 3


def mark(source: Source, truth: Truth, answer: Answer, known: set[Any], *, equivalent: bool, command: str) -> Mark:
    """Hold an answer against the truth."""
    serious = [one for one in answer.serious if (str(one.kind), frozenset(one.lines)) not in known]
    is_slow = truth.symptom == "slow"
    faults = [one for one in serious if one.kind != "straggler"]  # measured: on a loaded machine any rank may be late
    first = next(iter(serious if is_slow else faults), None)
    accused = {rank for one in faults for rank in one.ranks} | ({answer.culprit} - {None})
    false = [*waited_and_never_entered(answer)]
    if first is None:
        is_unblamed = answer.verdict == "passed" or (answer.verdict == "failed" and answer.culprit is None)
        right = (equivalent or truth.silent) and is_unblamed
        kind = rank = line = right
    elif equivalent and (faults or not is_slow):  # nothing happened, so nothing is to be said
        kind = rank = line = False
        false += [one.sentence for one in faults]
    else:
        kind = str(first.kind) in truth.kinds
        rank = frozenset(first.ranks) in truth.culprits and (
            answer.culprit is None or any(answer.culprit in ranks for ranks in truth.culprits)
        )
        named = first.lines[:1] if first.ranks and truth.symptom != "shifted" else first.lines
        line = any(one in truth.lines for one in named)
    return Mark(
        program=source.shown,
        family=source.family,
        mutation=truth.mutant.kind,
        mutant=truth.mutant.text,
        command=command,
        equivalent=equivalent,
        kind=kind,
        rank=rank,
        line=line,
        accused=tuple(sorted(accused & truth.innocent)),
        false=tuple(false),
        seconds=answer.seconds,
        truth={
            "at": truth.at,
            "kinds": sorted(truth.kinds),
            "ranks": [sorted(ranks) for ranks in truth.culprits],
            "lines": sorted(truth.lines),
        },
        answer=say_in_short(answer),
    )


# -- figures


def table(marks: Iterable[Mark], by: str) -> dict[str, dict[str, Any]]:
    """The figures of each kind of mutation, or kind of script."""
    groups = defaultdict[str, list[Mark]](list)
    for one in marks:
        groups[getattr(one, by)].append(one)
    return {name: figures(ones) for name, ones in sorted(groups.items())}


def figures(marks: Sequence[Mark]) -> dict[str, Any]:
    """How many are right. Equivalent mutants count as right if nothing was said."""
    seconds = [one.seconds for one in marks]
    return {
        "mutants": len(marks),
        "equivalent": sum(one.equivalent for one in marks),
        "kind": sum(one.kind for one in marks),
        "rank": sum(one.rank for one in marks),
        "line": sum(one.line for one in marks),
        "accused": sum(bool(one.accused) for one in marks),
        "false": sum(bool(one.false) for one in marks),
        "seconds": round(statistics.median(seconds), 2) if seconds else 0.0,
    }


def worst(marks: Iterable[Mark]) -> list[tuple[str, str, int, int, str]]:
    """The cells of mutation and script with the most wrong answers: wrong, of how many, and a command for one."""
    cells = defaultdict[tuple[str, str], list[Mark]](list)
    for one in marks:
        cells[one.mutation, one.family].append(one)
    wrong = [
        (*cell, len(bad), len(ones), bad[0].command)
        for cell, ones in cells.items()
        if (bad := [one for one in ones if not one.right])
    ]
    return sorted(wrong, key=lambda one: (-one[2], one[0], one[1]))


def _rows(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    columns = ("mutants", "equivalent", "kind", "rank", "line", "accused", "false", "seconds")
    yield f"{title:18}" + "".join(f"{name:>12}" for name in columns)
    for name, row in rows.items():
        yield f"{name:18}" + "".join(f"{row[column]:>12}" for column in columns)


def run_score(count: int, seed: int, sources: Sequence[Source], jobs: int = JOBS, kinds: Sequence[str] = ()) -> Score:
    """Score mutants on warm local clusters."""
    score = Score(count, seed, kinds)
    engine, _ = select_engine("local", "score")
    nodes = max(source.size[0] for source in sources)
    with scratch_records() as folder:
        options = RunOptions(runs=folder)
        run_parallel(engine, Shape(nodes=nodes), jobs, options, score.tasks(sources), print)
    return score


def main(asked: Any) -> int:
    """Score mutants and print the tables; always 0 with at least one mutant: CI compares the figures."""
    sources = list_sources(asked.patterns)
    if not sources:
        print("there is no program to draw mutants from", file=sys.stderr)
        return 2
    began = time.monotonic()
    score = run_score(asked.mutants, asked.seed, sources, asked.jobs, asked.kinds.split(",") if asked.kinds else ())
    shown = sys.stderr if asked.json else sys.stdout
    total = figures(score.marks)
    parts = {"mutation": table(score.marks, "mutation"), "script": table(score.marks, "family")}
    lines = [
        *_rows("mutation", parts["mutation"]),
        "",
        *_rows("script", parts["script"]),
        "",
        *_rows("", {"all": total}),
    ]
    lines += ["", f"runs without a mutant: {score.legal}, false statements: {len(score.false)}", *score.false]
    for mutation, family, wrong, of, command in worst(score.marks)[:10]:
        lines += [f"{wrong} of {of} wrong: {mutation} in {family}", f"    {command}"]
    lines += [f"left out: {text}" for text in sorted(set(score.untold))] + [f"{time.monotonic() - began:.0f} s"]
    print("\n".join(lines), file=shown)
    if asked.json:
        data = {"seed": asked.seed, "figures": total, **parts, "false": score.false}
        json.dump({**data, "marks": [{**asdict(one), "right": one.right} for one in score.marks]}, sys.stdout, indent=1)
        print()
    return 0 if score.marks else 1
