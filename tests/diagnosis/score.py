"""Runs labelled programs and says how right their diagnoses are.

    dev/score [PATTERN ...]        all programs, or those whose names hold one of the patterns
      --engine local|docker        where they run; local by default
      --json                       everything as data, also what was said
      --against FILE               compare with what --json wrote before
      --keep FOLDER                keep the records there
      --mutants N --seed S         N mutants of programs, or of the named folders and files; see `mutants.py`

A line for each: whether the first finding's kind, its ranks and the first line named are right, innocent ranks that
were named, statements that are not true, and the seconds that it took. Ends with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lab import Cluster, Result
from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.explain import explain_run
from lab.record.read import Record
from lab.spec.load import scenario_from_script
from tests.diagnosis import mutants
from tests.diagnosis.marking import Answer, Mark, figures, mark
from tests.diagnosis.programs import Program, read_programs

NODES = 4
"""As many as the largest program needs."""
_LONGEST_S = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Score."""
    parser = argparse.ArgumentParser(prog="dev/score", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only programs whose names hold one of these")
    parser.add_argument("--engine", choices=("local", "docker"), default="local")
    parser.add_argument("--json", action="store_true", help="print everything as data")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with what --json wrote before")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the records there")
    parser.add_argument("--mutants", type=int, metavar="N", help="score N mutants of programs; see mutants.py")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="with --mutants: the seed; 0 by default")
    parser.add_argument("--jobs", type=int, default=mutants.JOBS, metavar="N", help="with --mutants: clusters at once")
    parser.add_argument("--kinds", default="", metavar="KINDS", help="with --mutants: only these, such as skip,swap")
    asked = parser.parse_args(arguments)
    if asked.mutants:
        return mutants.main(asked)
    wanted = [one for one in read_programs() if not asked.patterns or any(text in one.name for text in asked.patterns)]
    before = json.loads(asked.against.read_text()) if asked.against else {}
    marks: dict[str, Mark] = {}
    shown = sys.stderr if asked.json else sys.stdout
    began = time.monotonic()
    for program, one in score(wanted, asked.engine, asked.keep):
        marks[program.name] = one
        print("\n".join(_lines(program, one)), file=shown, flush=True)
    total = figures(wanted, marks)
    print("\n".join(_summary(total, before.get("figures", {}), time.monotonic() - began)), file=shown)
    if before:
        print("\n".join(_changes(marks, before["programs"])), file=shown)
    if asked.json:
        programs = {name: {**asdict(one), "right": one.right} for name, one in marks.items()}
        json.dump({"figures": total, "programs": programs}, sys.stdout, indent=1)
        print()
    return 0 if all(one.right for one in marks.values()) else 1


def score(programs: list[Program], engine: str, keep: Path | None = None) -> Iterator[tuple[Program, Mark]]:
    """Run and mark programs, one after the other on one warm cluster."""
    folder = keep or Path(tempfile.mkdtemp(prefix="lab-score-"))
    try:
        with Cluster(NODES, name=f"score-{uuid.uuid4().hex[:8]}", engine=engine) as cluster:  # type: ignore[arg-type]
            for program in programs:
                yield program, mark(program, ask(program, cluster, folder))
    finally:
        if keep is None:
            shutil.rmtree(folder)


def ask(program: Program, cluster: Cluster, folder: Path, env: Mapping[str, str] | None = None) -> Answer:
    """What the lab says of a program; run again with more time if it had not come to its end or to where it stays."""
    alone = folder / program.name  # its folder is shipped: it holds nothing else
    alone.mkdir(parents=True, exist_ok=True)
    script = Path(shutil.copy(program.path, alone))
    timeout_s = program.timeout_s
    while True:
        scenario = replace(scenario_from_script(script), timeout_s=timeout_s, env=env or {})
        began = time.monotonic()
        result = cluster.run(scenario, nodes=program.nodes, runs=folder / "runs")
        took_s = time.monotonic() - began
        assert result.path is not None, result.reason
        evidence = read_evidence(Record(path=result.path))
        if not _still_moving(result, evidence, timeout_s) or timeout_s >= _LONGEST_S:
            break
        timeout_s *= 3
    explanation = explain_run(Record(path=result.path), evidence)
    culprit = result.culprit.rank if result.culprit is not None else None
    return Answer(
        verdict=result.verdict,
        reason=result.reason,
        culprit=culprit,
        findings=explanation.findings,
        seconds=round(took_s, 2),
    )


def _still_moving(result: Result, evidence: Evidence, timeout_s: float) -> bool:
    """Whether a run was stopped while ranks still imported modules or made calls: a loaded machine needs more time."""
    if result.verdict not in ("hung", "timeout"):
        return False
    ranks = evidence.trace.ranks.values()
    ends = [rank.calls[-1].end or rank.calls[-1].begin for rank in ranks if rank.calls]
    beginning = any(rank.started is None or "importlib._bootstrap" in rank.stack for rank in evidence.facts.ranks)
    return beginning or max(ends, default=0.0) > timeout_s * 2 / 3


def _lines(program: Program, one: Mark) -> Iterator[str]:
    parts = " ".join(f"{name} {'✔' if getattr(one, name) else '✘'}" for name in ("kind", "rank", "line"))
    yield f"{'✔' if one.right else '✘'} {program.name:32} {parts}  {one.seconds:5.2f} s"
    if one.accused:
        yield f"    innocent: {', '.join(map(str, one.accused))}"
    yield from (f"    false: {text}" for text in one.false)
    if not one.right:
        wanted = " | ".join(" ".join(map(str, sorted(ranks))) or "nobody" for ranks in program.culprits)
        if not program.legal:
            yield f"    wanted: {' | '.join(sorted(program.kinds))}; rank {wanted}; {', '.join(program.causes)}"
        yield f"    said: {one.answer['reason']}"
        for finding in one.answer["findings"]:
            yield f"      {finding['kind']} {finding['ranks']} {finding['lines']}: {finding['sentence']}"


def _summary(total: Mapping[str, int], before: Mapping[str, int], seconds: float) -> Iterator[str]:
    for name, number in total.items():
        was = f"   before: {before[name]}" if name in before else ""
        yield f"{name:32} {number:4}{was}"
    yield f"{'seconds':32} {seconds:4.0f}"


def _changes(marks: Mapping[str, Mark], before: Mapping[str, Any]) -> Iterator[str]:
    """Programs that are right now and were not, and the other way round."""
    for name, one in marks.items():
        if name in before and before[name]["right"] != one.right:
            yield f"{name}: {'right' if one.right else 'wrong'} now, {'wrong' if one.right else 'right'} before"


if __name__ == "__main__":
    sys.exit(main())
