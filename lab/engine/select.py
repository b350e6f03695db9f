"""Select an engine: one of the kernel's, or one that a feature adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from lab.engine.ownership import local_home, registered_engines
from lab.errors import EngineAbsent, EngineUnavailable, UsageError
from lab.feature import Choices, all_entries, find_entry, import_entry

if TYPE_CHECKING:
    from lab.engine.protocol import Engine, Traits

AUTO = "auto"
"""Selects the engine that has the cluster, or else the first of `OPENERS` that answers."""


_CLASSES = {"docker": "lab.engine.docker.engine:DockerEngine", "local": "lab.engine.local.engine:LocalEngine"}
"""The kernel's own engines, in the order in which they are tried."""


def _open(entry: str) -> Engine:
    return cast("Engine", import_entry(entry)())


OPENERS: dict[str, Callable[[], Engine]] = {name: partial(_open, entry) for name, entry in _CLASSES.items()}
"""Opens each of them; see `open_engine`."""


def engine_names() -> list[str]:
    """Return the names of all engines: the kernel's, then those of features."""
    return [*OPENERS, *all_entries("engines")]


CHOICES = Choices((AUTO, *OPENERS), lambda: (AUTO, *engine_names()))
"""Values of `--engine`."""


def engine_class(name: str) -> type[Engine] | None:
    """Return the class of an engine, which need not answer; None for an unknown name."""
    engine_type: type[Engine] | None = import_entry(_CLASSES[name]) if name in _CLASSES else find_entry("engines", name)
    return engine_type


def traits_of(name: str) -> Traits:
    """Return the traits of an engine by its name; default traits for an unknown name."""
    from lab.engine.protocol import Traits

    engine_type = engine_class(name)
    return engine_type.traits if engine_type is not None else Traits()


def open_engine(name: str) -> Engine:
    """Open the engine of this name.

    Raises:
        EngineUnavailable: it does not answer.
        UsageError: there is no engine of this name.
    """
    if name in OPENERS:
        return OPENERS[name]()
    if (opener := engine_class(name)) is None:
        from lab.spec.reading import did_you_mean
        from lab.words import join_words

        names = engine_names()
        raise UsageError(f"there is no engine {name!r}{did_you_mean(name, names)}", f"allowed: {join_words(names)}")
    return opener()


def select_engine(choice: str, cluster: str | None = None) -> tuple[Engine, str]:
    """Select an engine; return it and a message about the choice, empty if there is nothing to report.

    Args:
        choice: its name, or `auto`: the engine that has the cluster, else Docker if it answers, else local.
        cluster: the wanted cluster.

    Raises:
        EngineUnavailable: the named engine does not answer, or no engine does.
        UsageError: there is no engine of this name.
    """
    if choice != AUTO:
        return open_engine(choice), ""
    there = _engine_with(cluster) if cluster is not None else None
    if there is not None:
        return open_engine(there), ""
    first, second = OPENERS
    try:
        return OPENERS[first](), ""
    except EngineUnavailable as no_first:
        try:
            return OPENERS[second](), f"using the {second} engine ({no_first.message})"
        except EngineUnavailable as no_second:
            raise EngineUnavailable(f"{no_first.message}; and {no_second.message}", no_second.hint) from None


def available_engines(choice: str = AUTO) -> tuple[list[Engine], dict[str, EngineUnavailable]]:
    """Return every engine that answers, and by name why the others do not; or only the chosen one.

    Engines of features are asked only if they have a cluster: they may take long to answer.

    Raises:
        EngineUnavailable: the chosen engine does not answer.
    """
    if choice != AUTO:
        return [open_engine(choice)], {}
    engines: list[Engine] = []
    silent: dict[str, EngineUnavailable] = {}
    for name in (*OPENERS, *registered_engines()):
        try:
            engines.append(open_engine(name))
        except EngineUnavailable as why:
            silent[name] = why
        except UsageError as none:  # the feature was removed
            silent[name] = EngineAbsent(none.message, none.hint)
    return engines, silent


def _engine_with(cluster: str) -> str | None:
    """Return the engine in whose folder a cluster is; a half-created one counts too, because it has to be removed."""
    return "local" if (local_home() / cluster).exists() else next(iter(registered_engines(cluster)), None)
