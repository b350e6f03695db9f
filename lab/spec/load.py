"""From a file to a `Scenario`, or to an error that names every problem with its place.

Two doors: a YAML file (`load_scenario`) and a plain script (`scenario_from_script`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from yaml.nodes import Node

from lab.spec.document import position_of, read_document
from lab.spec.environment import environment, name_problem
from lab.spec.expect import World, read_expect
from lab.spec.paths import python_files, script_path, volumes
from lab.spec.problems import InvalidError, Position, Problems, did_you_mean, shown
from lab.spec.scenario import BACKENDS, MAX_TRACE_VALUES, Expect, Resources, Scenario, Tracing
from lab.spec.section import RESOURCES_KEYS, SCENARIO_KEYS, TRACE_KEYS, Section
from lab.spec.values import (
    boolean,
    choice,
    duration,
    items,
    kind_of,
    number,
    refused,
    size,
    text,
    text_or_number,
    whole_number,
)

MAX_NODES = 1024
"""Most nodes, and most workers on one node, that a scenario may ask for."""
MAX_TIMEOUT_S = 720 * 3600.0
"""Longest time-out, in seconds."""
MIN_MEMORY_BYTES = 64 * 1024**2
"""Least memory of a node: below this no Python with torch starts."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NAME_ALLOWED = "lower-case letters, digits, - and _, up to 63, a letter or digit first"
_COUNT_ALLOWED = f"a whole number from 1 to {MAX_NODES}"


def load_scenario(path: Path) -> Scenario:
    """Reads a scenario file.

    Args:
        path: the YAML file; the paths in it are relative to its folder.

    Returns:
        The scenario, with absolute paths.

    Raises:
        ScenarioError: the file cannot be read, or something in it is not valid. One line a problem, in the order of
            the file, each `path:line:column: field: found ...; allowed: ...`.
    """
    path = Path(path)
    problems = Problems(path)
    try:
        scenario = _read_scenario(read_document(path), Path(os.path.abspath(path)), problems)
    except InvalidError as problem:
        problems.add(problem.where, problem.message)
        raise problems.error() from None
    problems.raise_if_any()
    return scenario


def scenario_from_script(
    path: Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    nodes: int | None = None,
    nproc_per_node: int | None = None,
    backend: str = "gloo",
    timeout_s: float = 60.0,
    cold: bool = False,
) -> Scenario:
    """The scenario of a plain script: named after its file, everything else by default or as given.

    Args:
        path: the script; its folder is shipped to every node.
        args: arguments of the script.
        env: environment variables added on every rank.
        nodes: how many nodes take part; None: as many as the cluster has.
        nproc_per_node: workers on each node; None: as the cluster says.
        backend: the torch.distributed backend that the script uses.
        timeout_s: seconds after which the run is hung.
        cold: start a fresh interpreter for every worker.

    Raises:
        ScenarioError: there is no such script, or a value makes no sense; the message begins with `path:1:1: `.
    """
    path = Path(path)
    problems = Problems(path)
    start = Position()
    wrong = _script_problem(path)
    if wrong:
        problems.add(start, wrong)
    for field, count in (("nodes", nodes), ("nproc_per_node", nproc_per_node)):
        if count is not None and (type(count) is not int or not 1 <= count <= MAX_NODES):
            problems.add(start, f"{field}: found {shown(count)}; allowed: {_COUNT_ALLOWED}")
    if backend not in BACKENDS:
        meant = did_you_mean(backend, BACKENDS)
        problems.add(start, f"backend: found {shown(backend)}{meant}; allowed: {', '.join(BACKENDS)}")
    if not math.isfinite(timeout_s) or not 0 < timeout_s <= MAX_TIMEOUT_S:
        allowed = f"more than 0 and at most {MAX_TIMEOUT_S:.0f} seconds"
        problems.add(start, f"timeout: found {shown(timeout_s)}; allowed: {allowed}")
    for name in env or {}:
        why = name_problem(name)
        if why:
            problems.add(start, f"env: {why}")
    problems.raise_if_any()
    return Scenario(
        name=slug(path.stem),
        script=Path(os.path.abspath(path)),
        nodes=nodes,
        nproc_per_node=nproc_per_node,
        backend=backend,
        args=tuple(args),
        env=dict(env or {}),
        timeout_s=timeout_s,
        cold=cold,
    )


def slug(word: str) -> str:
    """The word as a name may be written: lower-case, everything else than letters, digits, - and _ replaced by -."""
    return re.sub(r"[^a-z0-9_-]+", "-", word.lower()).strip("-_")[:63] or "scenario"


def _read_scenario(root: Node, path: Path, problems: Problems) -> Scenario:
    section = Section(root, "", SCENARIO_KEYS, problems)
    if "script" not in section:
        problems.add(position_of(root), _missing_script(path))
    count = partial(whole_number, low=1, high=MAX_NODES)
    world = World(nodes=section.read("nodes", count, None), nproc_per_node=section.read("nproc_per_node", count, None))
    script = section.read("script", partial(script_path, folder=path.parent), None)
    expect = partial(read_expect, world=world, script=script, problems=problems)
    arguments = partial(items, allowed="a list of text and numbers", read=text_or_number, problems=problems)
    return Scenario(
        name=section.read("name", _name, slug(path.stem)),
        script=script or path,
        source=path,
        learn=section.read("learn", text, ""),
        predict=section.read("predict", text, ""),
        nodes=world.nodes,
        nproc_per_node=world.nproc_per_node,
        backend=section.read("backend", partial(choice, choices=BACKENDS), Scenario.backend),
        args=section.read("args", arguments, ()),
        env=section.read("env", partial(environment, problems=problems), {}),
        timeout_s=section.read("timeout", partial(duration, longest_s=MAX_TIMEOUT_S), Scenario.timeout_s),
        cold=section.read("cold", boolean, False),
        resources=section.read("resources", partial(_resources, problems=problems), Resources()),
        volumes=section.read("volumes", partial(volumes, folder=path.parent, problems=problems), ()),
        trace=section.read("trace", partial(_tracing, problems=problems), Tracing()),
        expect=section.read("expect", expect, Expect()),
    )


def _name(node: Node, field: str) -> str:
    value = text(node, field, _NAME_ALLOWED)
    if not _NAME.fullmatch(value):
        meant = f" (did you mean {slug(value)!r}?)" if re.search("[A-Za-z0-9]", value) else ""
        raise refused(node, field, _NAME_ALLOWED, meant)
    return value


def _resources(node: Node, field: str, problems: Problems) -> Resources:
    section = Section(node, field, RESOURCES_KEYS, problems)
    cores = partial(number, allowed="a number of cores, more than 0, at most 1024", fits=lambda n: 0 < n <= 1024)
    return Resources(
        cpus=section.read("cpus", cores, None),
        memory_bytes=section.read("memory", partial(size, low=MIN_MEMORY_BYTES, high=1024**5), None),
        gpus=section.read("gpus", partial(whole_number, low=0, high=64), 0),
    )


def _tracing(node: Node, field: str, problems: Problems) -> Tracing:
    if kind_of(node) == "boolean":
        return Tracing(on=boolean(node, field))
    if kind_of(node) != "mapping":
        raise refused(node, field, "true, false, or a mapping with the key values")
    section = Section(node, field, TRACE_KEYS, problems)
    return Tracing(values=section.read("values", partial(whole_number, low=0, high=MAX_TRACE_VALUES), None))


def _missing_script(path: Path) -> str:
    names = python_files(path.parent)
    same = f"{path.stem}.py"
    name = same if same in names else names[0] if len(names) == 1 else ""
    meant = f" (did you mean 'script: {name}'?)" if name else ""
    return f"script: missing{meant}; allowed: the path of a script beside this file, such as script: train.py"


def _script_problem(path: Path) -> str:
    """Why a path is not that of a script; empty if it is."""
    if os.path.isdir(path):
        names = python_files(path)
        holds = f"; it holds {', '.join(names[:10])}" if names else ""
        return f"is a folder; allowed: a script{holds}"
    if os.path.isfile(path):
        return "" if os.access(path, os.R_OK) else "cannot be read: Permission denied"
    if os.path.exists(path):
        return "is not a regular file; allowed: a script"
    if not os.path.isdir(path.parent):
        return f"no such script; the folder {shown(str(path.parent), 1000)} does not exist"
    return f"no such script{did_you_mean(path.name, python_files(path.parent))}"
