"""Define launchers, which start the workers of a scenario: processes per node, their arguments, and variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from lab.errors import UsageError
from lab.feature import LAUNCHERS, Choices, all_entries, find_entry, import_entry
from lab.frozen import Frozen
from lab.spec import kinds
from lab.spec.declare import dump_keys, key_field, mapping_schema, section_kind
from lab.spec.reading import Value, did_you_mean

LAB = "lab"


class Launching(NamedTuple):
    """Name the launcher of a scenario, with its settings."""

    name: str = LAB
    settings: Any = None
    """Settings as the dataclass that declares the launcher's keys; None if the scenario has none."""

    @property
    def max_restarts(self) -> int:
        """How often the launcher restarts the workers."""
        return getattr(self.settings, "max_restarts", 0)

    def least_nodes(self, nnodes: int) -> int:
        """Return how many nodes a run needs to begin, and to continue after it has lost the others."""
        return getattr(self.settings, "min_nodes", None) or nnodes


class Starter(NamedTuple):
    """A process without a rank that starts workers on its node."""

    node: str
    argv: tuple[str, ...]
    """Program and arguments; `lab.node.messages.agent` defines the placeholder for the node's Python."""
    env: Mapping[str, str]
    """Variables that are added to the node's own environment."""
    modules: tuple[str, ...] = ()
    """Modules that the node's Python must have for the workers."""


class Layout(NamedTuple):
    """Describe a run for a launcher."""

    run: str
    addresses: tuple[str, ...]
    """By rank of the node, as other nodes reach it."""
    nproc_per_node: int
    port: int
    """Port of the run's rendezvous store, on the first node."""
    env: Mapping[str, str]
    """Variables of each worker in addition to those of its rank."""
    argv: tuple[str, ...]
    """The script, relative to its folder, and its arguments."""
    settings: Launching


class Launcher:
    """Start workers on nodes. This launcher is the lab itself: agents fork the workers that the plan lists.

    Features derive others from it (`Feature.launchers`).
    """

    declares = "lab.spec.launching:Lab"
    """Dataclass of the launcher's keys, as `module:attribute`; empty: it has no keys."""
    plans_ranks = True
    """Whether the plan places ranks and sets their variables; if not, the starters do."""

    def refusal(self, layout: Layout) -> str:
        """Explain in a sentence why the launcher cannot start this run; empty if it can."""
        return ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """Return the processes to start on the nodes; none if agents start the workers themselves."""
        return ()

    def find_requested_starter(self, asking: Starter, line: str) -> Starter | None:
        """Return the process that a starter requests by a line that it prints."""
        return None


RESTARTS = kinds.whole_number(0, 1000)


class Lab(Frozen):
    """The settings of the lab's own launcher."""

    max_restarts: int = key_field(0, RESTARTS, "max_restarts: 1")
    """How often to restart all workers after a failure; a lost node starts first."""


def launcher_names() -> list[str]:
    """List the names of all launchers, the lab's own first, including bundled ones that are missing."""
    return list(dict.fromkeys([LAB, *LAUNCHERS, *all_entries("launchers")]))


CHOICES = Choices((LAB, *LAUNCHERS), launcher_names)
"""Values of `--launcher`."""


def find_launcher(name: str) -> Launcher:
    """Return the launcher of this name.

    Raises:
        UsageError: there is none of that name; the message names near matches.
    """
    launcher = Launcher if name == LAB else find_entry("launchers", name)
    if launcher is not None:
        return cast("Launcher", launcher())
    if name in LAUNCHERS:
        raise UsageError(f"the launcher {name} needs the feature {LAUNCHERS[name]}, which is missing")
    known = launcher_names()
    raise UsageError(f"the lab has no launcher {name!r}{did_you_mean(name, known)}", f"allowed: {', '.join(known)}")


def launcher_kind() -> kinds.Kind:
    """Make the kind of the key `launcher`: a name, or a mapping from a name to settings."""
    known = launcher_names()
    there = [name for name in known if name == LAB or find_entry("launchers", name)]
    declared = {name: import_entry(entry) for name in there if (entry := find_launcher(name).declares)}
    allowed = f"{', '.join(known)}, or a mapping from {' or '.join(declared)} to its settings"

    def refuse_missing(value: Value, name: str) -> None:
        try:
            find_launcher(name)
        except UsageError as error:
            raise value.problem(error.message) from None

    def read(value: Value) -> Launching:
        if value.kind != "mapping":
            if (word := kinds.read_text(value, allowed, quotable=False)) not in known:
                raise value.refused(allowed, did_you_mean(word, known))
            refuse_missing(value, word)
            return Launching(name=word)
        pairs = value.pairs(allowed)
        if len(pairs) != 1:
            raise value.refused(allowed, f" with {len(pairs)} keys")
        name_value, settings_value = pairs[0]
        if (name := name_value.as_key()) in known:
            refuse_missing(name_value, name)
        if name not in declared:
            raise name_value.problem(f"unknown key {name!r}{did_you_mean(name, declared)}; allowed: {allowed}")
        settings = section_kind(declared[name]).read(settings_value)
        if problem := settings.problem() if hasattr(settings, "problem") else "":
            raise settings_value.problem(problem)
        return Launching(name, settings if settings != declared[name]() else None)

    def dump(data: Launching) -> Any:
        settings = dump_keys(data.settings) if data.settings is not None else {}
        return {data.name: settings} if settings else data.name

    sections = {name: mapping_schema(one) for name, one in declared.items()}
    one_of = {"type": "object", "additionalProperties": False, "properties": sections}
    schema = {"anyOf": [{"enum": known}, {**one_of, "minProperties": 1, "maxProperties": 1}]}
    return kinds.Kind(allowed, read, schema, dump)
