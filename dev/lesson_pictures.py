"""The pictures on the pages of the lessons: each shows the step of a run that the lesson is about.

They are kept in build/lesson-pictures until the lesson changes. What the local engine cannot run, Docker runs. If there
is no picture, the reason is kept.
"""

from __future__ import annotations

import hashlib
import signal
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
"""NAME-DIGEST.svg; instead of a picture, it can hold a sentence that says why there is none."""


def picture_file(lesson: Path, scenario: Scenario) -> Path:
    """Where the picture of a lesson is kept."""
    parts = (lab.__version__.encode(), lesson.read_bytes(), scenario.script.read_bytes())
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
    return KEPT / f"{lesson.stem}-{digest}.svg"


def draw(result: Result) -> str:
    """The picture of a run, as SVG; or why there is none."""
    if result.path is None or not result.passed:
        return f"the run did not end as the lesson expects: {result.reason}"
    evidence = read_evidence(Record(path=result.path))
    step = choose_step(evidence.steps, result.scenario)
    if step is None:
        return "no rank of this lesson calls an operation"
    unrecorded = unrecorded_ranks(evidence.trace)
    return svg_of(picture_of(step, result.expectations, len(result.ranks), unrecorded), standalone=True)


_NO_GPU = "the machine that drew the pictures has no GPU"


def has_picture(text: str) -> bool:
    """Whether a file of `KEPT` holds a picture."""
    return text.startswith("<")


def main() -> None:
    """Draw the pictures that are missing."""
    lessons = {path: load_scenario(path) for path in find_scenarios([library_folder()])}
    KEPT.mkdir(parents=True, exist_ok=True)

    def is_missing(lesson: tuple[Path, Scenario]) -> bool:
        kept = picture_file(*lesson)
        return not kept.exists() or not has_picture(kept.read_text(encoding="utf-8"))

    def size(lesson: tuple[Path, Scenario]) -> tuple[int, int]:
        return lesson[1].nodes or 3, lesson[1].nproc_per_node or 1

    for engine in ("local", "docker"):
        for (nodes, per_node), group in groupby(sorted(filter(is_missing, lessons.items()), key=size), key=size):
            with (
                tempfile.TemporaryDirectory() as runs,
                Cluster(nodes, nproc_per_node=per_node, engine=engine) as cluster,
            ):
                for path, scenario in group:
                    try:
                        picture = draw(cluster.run(scenario, runs=runs))
                    except LabError as error:
                        picture = _NO_GPU if scenario.resources.gpus else error.message
                    if not has_picture(picture):
                        print(f"{path.stem} ({engine}): {picture}", file=sys.stderr)
                    picture_file(path, scenario).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which removes the cluster
    main()
