"""What is graded, and with what: the scenario, what was handed in, an engine that keeps strangers' scripts apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.engine.select import AUTO, OPENERS, select_engine
from lab.errors import EngineUnavailable, UsageError
from lab.feature import hook
from lab.features.grade.keys import grading_of
from lab.features.grade.run import Desk
from lab.features.grade.stage import own_folder
from lab.features.grade.submissions import Room, Submission, find_submissions, unzip
from lab.plan.cluster import Shape
from lab.run.options import RunOptions
from lab.run.ship import pack_folder
from lab.spec.lessons import named_file
from lab.spec.load import load_scenario
from lab.spec.reading import names_in
from lab.spec.scenario import Scenario
from lab.words import listing

_ROOM = Room(bytes=1 << 30, files=20_000)
"""What the zip file of a whole class may hold."""
_WHY_DOCKER = "only there is a submission kept from this machine, and from the next one"


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder of all submissions; a zip file is unpacked for as long as the block lasts.

    Raises:
        UsageError: there is none, or it cannot be unpacked.
    """
    if path.is_dir():
        yield path
    elif path.suffix.lower() != ".zip" or not path.is_file():
        raise UsageError(f"{path} is neither a folder nor a zip file", "name the folder that holds the submissions")
    else:
        with own_folder() as folder:
            try:
                unzip(path, folder, _ROOM)
            except UsageError as error:
                raise UsageError(f"{path} cannot be unpacked: {error.message}") from error
            yield folder


def find_assignment(folder: Path, named: Path | None) -> Scenario:
    """The scenario that was named, else the one in the folder of the submissions.

    Raises:
        UsageError: there is none, or there are several.
        ScenarioError: it is not valid.
    """
    if named is not None:
        return load_scenario(named_file(named))
    names = names_in(folder, ".yaml", ".yml")
    if len(names) != 1:
        there = f"holds {listing(names)}" if names else "holds no scenario"
        raise UsageError(f"{folder} {there}", "name the assignment with --scenario")
    return load_scenario(folder / names[0])


def submissions_to(assignment: Scenario, folder: Path) -> list[Submission]:
    """What was handed in in a folder, which may be that of the assignment.

    Raises:
        UsageError: there is nothing.
    """
    own = assignment.script.parent
    files = [assignment.script, *(own / name for name in grading_of(assignment).files)]
    if assignment.source is not None:
        files.append(assignment.source)
    if assignment.expect.check:
        files.append(own / assignment.expect.check.partition(":")[0])
    return find_submissions(folder, files)


def open_desk(
    assignment: Scenario,
    submissions: Sequence[Submission],
    *,
    engine: str,
    trust: bool,
    asked: Mapping[str, Any],
    options: RunOptions,
    jobs: int,
) -> Desk:
    """What to grade with.

    Args:
        assignment: the scenario.
        submissions: what was handed in; no check gets to see any of it but in the folder of its ranks.
        engine: which; `auto` is the first of all, which is Docker.
        trust: grade without isolation, on any engine.
        asked: fields of the shape of the clusters.
        options: how to run them.
        jobs: clusters side by side.

    Raises:
        UsageError: an engine is asked for strangers' scripts that does not isolate them.
        EngineUnavailable: no engine answers that can be used.
    """
    mounted = [*assignment.data, *(volume.target for volume in assignment.volumes)]
    if mounted and not trust:
        raise UsageError(
            f"{assignment.name} mounts {listing(mounted)}, and nodes that grade mount no folder of this machine",
            "name the files under `grade: files:`; or, if you trust every submission, --trust",
        )
    first = next(iter(OPENERS))
    choice = first if engine == AUTO and not trust else engine
    try:
        opened = select_engine(choice)[0]
    except EngineUnavailable as error:
        if trust or choice != first:
            raise
        raise EngineUnavailable(f"{error.message}; submissions are graded there: {_WHY_DOCKER}", error.hint) from error
    if not trust and not opened.traits.isolates:
        raise UsageError(
            f"submissions are graded on the {first} engine: {_WHY_DOCKER}",
            f"--trust grades on the {opened.name} engine all the same, and says so on every result",
        )
    with_stated_calls = hook("with_stated_calls")
    if with_stated_calls:
        assignment = with_stated_calls(assignment, *options.size_of_run(assignment, Shape(nodes=1)))
    if assignment.expect.check:
        apart = pack_folder(assignment.script.parent, [one.path for one in submissions]).archive
        options = replace(options, check_archive=apart)
    return Desk(
        assignment=assignment,
        open_engine=lambda: select_engine(choice)[0],
        engine=opened.name,
        strict=not trust,
        asked=asked,
        options=replace(options, fresh=True),
        jobs=jobs,
    )
