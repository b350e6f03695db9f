"""The pictures on the pages of the lessons: each shows the step of a run on the local engine that the lesson is about.

They are kept in build/lesson-pictures until the lesson changes. A lesson that the local engine cannot run has none.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import lab
from lab.cluster import Cluster
from lab.diagnosis.evidence import read_evidence
from lab.errors import LabError
from lab.features.lessons.lesson import choose_step
from lab.features.pictures.model import picture_of, unrecorded_ranks
from lab.features.pictures.svg import svg_of
from lab.record.read import Record
from lab.record.result import Result
from lab.spec.load import find_scenarios, library_folder, load_scenario
from lab.spec.scenario import Scenario

KEPT = Path(__file__).resolve().parent.parent / "build" / "lesson-pictures"
"""NAME-DIGEST.svg; empty if there is no picture."""


def picture_file(lesson: Path, scenario: Scenario) -> Path:
    """Where the picture of a lesson is kept."""
    parts = (lab.__version__.encode(), lesson.read_bytes(), scenario.script.read_bytes())
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
    return KEPT / f"{lesson.stem}-{digest}.svg"


def draw(result: Result) -> str:
    """The picture of a run, as SVG; empty if the run did not come out as the lesson wants, or moved nothing."""
    if result.path is None or not result.passed:
        return ""
    evidence = read_evidence(Record(path=result.path))
    step = choose_step(evidence.steps, result.scenario)
    if step is None:
        return ""
    unrecorded = unrecorded_ranks(evidence.trace)
    return svg_of(picture_of(step, result.expectations, len(result.ranks), unrecorded), standalone=True)


def main() -> None:
    """Draw the pictures that are missing."""
    lessons = {path: load_scenario(path) for path in find_scenarios([library_folder()])}
    missing = [(path, one) for path, one in lessons.items() if not picture_file(path, one).exists()]
    KEPT.mkdir(parents=True, exist_ok=True)

    def size(lesson: tuple[Path, Scenario]) -> tuple[int, int]:
        return lesson[1].nodes or 3, lesson[1].nproc_per_node or 1

    for (nodes, per_node), group in groupby(sorted(missing, key=size), key=size):
        with tempfile.TemporaryDirectory() as runs, Cluster(nodes, nproc_per_node=per_node, engine="local") as cluster:
            for path, scenario in group:
                try:
                    picture = draw(cluster.run(scenario, runs=runs))
                except LabError as error:
                    picture = ""
                    print(f"{path.stem}: {error.message}", file=sys.stderr)
                picture_file(path, scenario).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
