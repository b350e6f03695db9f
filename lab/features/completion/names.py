"""Names of what is there, for shells that complete a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lab.plan.cluster import ClusterInfo


def _lessons() -> Iterable[str]:
    from lab.spec.lessons import lessons

    return lessons()


def _scenarios() -> Iterable[str]:
    from lab.spec.lessons import SIGN

    return [f"{SIGN}{name}" for name in _lessons()]


def _runs() -> Iterable[str]:
    from lab.record.read import list_records

    return [record.run for record in list_records()]


def _found() -> list[ClusterInfo]:
    from lab.engine.select import available_engines

    engines, _ = available_engines()
    return [info for engine in engines for info in engine.find()]


def _clusters() -> Iterable[str]:
    return [info.name for info in _found()]


def _nodes() -> Iterable[str]:
    from lab.engine.ownership import default_name

    found = _found()
    own = [info for info in found if info.name == default_name()]  # the one that is meant without --name
    return {node.name for info in own or found for node in info.nodes}


def _topics() -> Iterable[str]:
    from lab.cli.overview import every_verb
    from lab.features.help.topics import topics

    return {*topics(), *every_verb()}


def _faults() -> Iterable[str]:
    from lab.feature import hook

    names = hook("fault_names")
    return names() if names else ()


NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "lessons": _lessons,
    "scenarios": _scenarios,
    "runs": _runs,
    "clusters": _clusters,
    "nodes": _nodes,
    "topics": _topics,
    "faults": _faults,
}
"""Kind of names -> those that there are now."""
