"""Define what a feature adds to the kernel, list the features, and look up what the kernel does not know itself.

A feature is a folder in `lab/features`, or another package that names its `Feature` as an entry point of the group
`lab.features`. The kernel imports no feature. It reads a feature's values only when it meets a name that is not its
own (a verb, an option, an engine), so that unused features cost nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # not from typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any, NoReturn

IN_TREE = (
    "suite", "timeline", "traffic", "records", "watch", "html", "export", "calls", "training", "values", "links",
    "groups", "messages", "mismatches", "stragglers", "started", "compare", "dumps", "grade",
    "lessons", "scaffold", "interactive", "copy", "image", "remote", "help", "faults", "edits", "chaos", "functions",
    "network_model", "pictures", "pytest", "recording", "packages", "launchers", "mpi", "gpu", "zygote", "slurm",
    "kubernetes",
    "strict", "strict_order", "advice", "attach", "equal", "mutants",
)  # fmt: skip
"""The folders of `lab/features`, in the order of `lab --help`."""
KEYS = {
    "needs": "mpi",
    "requirements": "packages",
    "predict": "lessons",
    "expect.calls": "calls",
    "expect.replicas": "training",
    "grade": "grade",
    **dict.fromkeys(("network", "faults", "rerun", "expect.detected_within"), "faults"),
    "strict_order": "strict_order",
    "mutant": "mutants",
    "expect.equal_to": "equal",
    "expect.mutants": "mutants",
}
"""The keys of scenarios that features of the lab add, with the feature of each, which is the only one that a file with
the key loads. In a mapping that is not the whole file, it is `expect.key`."""
LAUNCHERS = {"torchrun": "launchers", "mpirun": "launchers"}
"""The launchers that features of the lab add, with the feature of each."""
FINDINGS = ("groups", "messages", "mismatches", "training", "values", "links", "stragglers", "launchers", "started",
            "mpi", "advice", "strict_order")  # fmt: skip
"""The features of the lab that add findings; what asks for those loads no others, which takes long."""
GROUP = "lab.features"
"""The group of entry points by which other packages add features: the name of the feature = its module:attribute."""


class Feature:
    """Describe what a feature adds. Entries are `package.module`, or `package.module:attribute` for an object in it.

    In a feature of the lab, `.module` is a module of its own folder.
    """

    name: str
    """Name of the feature's folder."""
    needs: tuple[str, ...] = ()
    """Other features; without them this one is unavailable."""
    verbs: Mapping[str, tuple[str, ...]] = {}
    """Modules of verbs, by name, each with its line and group in `lab --help`; see `lab.cli.call.Verb`."""
    options: Mapping[str, str] = {}
    """Modules that add options to verbs of others, by the name of the verb; see `lab.cli.call.Command`."""
    exports: Mapping[str, str] = {}
    """Objects that `import lab` offers, by name."""
    views: Mapping[str, str] = {}
    """Functions that other features call to show something, by name."""
    cluster: Mapping[str, str] = {}
    """Methods and properties that the feature adds to `Cluster`, by name."""
    engines: Mapping[str, str] = {}
    """Engine classes, by their name for `--engine`; see `lab.engine.protocol.Engine`."""
    launchers: Mapping[str, str] = {}
    """Launcher classes, by name; see `lab.spec.launching.Launcher`."""
    keys: Mapping[str, str] = {}
    """Dataclasses that declare the feature's scenario keys, by key; see `lab.spec.declare`."""
    findings: Mapping[str, str] = {}
    """Additions to the diagnosis: `kinds`, an enumeration (`lab.diagnosis.finding.Kind`), and rules by the moment of
    their evaluation, see `lab.diagnosis.evidence`."""
    hooks: Mapping[str, str] = {}
    """Functions that the kernel or another feature calls if they exist, by name."""
    record_files: Mapping[str, str] = {}
    """Descriptions of the files that the feature adds to records, by name."""
    parts: tuple[str, ...] = ()
    """Functions that make a part of a plan from a scenario and options, if these need it; see `lab.plan.plan.Part`."""
    on_node: str = ""
    """A package that nodes get as `labnode.features.NAME.on_node`, next to `labnode.node`, their copy of `lab.node`.
    It uses relative imports and needs only Python 3.9, the standard library, and torch."""

    def __init__(self, *, name: str, **parts: Any) -> None:
        if unknown := parts.keys() - Feature.__annotations__:
            raise TypeError(f"a feature has no field {', '.join(sorted(unknown))}")
        self.__dict__.update(_absolute(parts, f"lab.features.{name}"), name=name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot change {name} of the feature {self.name}: features are read-only")

    def __repr__(self) -> str:
        return f"Feature(name={self.name!r})"


def _absolute(entry: Any, home: str) -> Any:
    """Replace the dot that entries begin with, in all values of a field, by the package of a feature of the lab."""
    if isinstance(entry, str):
        return f"{home}{entry}" if entry.startswith(".") else entry
    if isinstance(entry, tuple):
        return tuple(_absolute(one, home) for one in entry)
    return {name: _absolute(one, home) for name, one in entry.items()}


class Choices:
    """Values of an option to which features add; those are asked only for an unknown value, and for all.

    Args:
        known: the values that need no search.
        find_all: returns all values.
    """

    def __init__(self, known: Collection[str], find_all: Callable[[], Collection[str]]) -> None:
        self._known, self._find_all = known, find_all

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._find_all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._find_all())


_all_features: tuple[Feature, ...] | None = None
_installed_features: tuple[Feature, ...] | None = None


def list_features() -> tuple[Feature, ...]:
    """Return each feature whose needs are available: those of the lab, then those of other packages by name."""
    global _all_features
    if _all_features is None:
        every = [*map(_in_tree, IN_TREE), *installed_features()]
        names = {feature.name for feature in every}
        while missing := {feature.name for feature in every if not names.issuperset(feature.needs)} & names:
            names -= missing
        _all_features = tuple(feature for feature in every if feature.name in names)
    return _all_features


def import_entry(entry: str) -> Any:
    """Import the module, or the object in a module, that an entry names."""
    module, _, attributes = entry.partition(":")
    loaded: Any = import_module(module)
    for attribute in attributes.split(".") if attributes else ():
        loaded = getattr(loaded, attribute)
    return loaded


def find_entry(kind: str, name: str) -> Any:
    """Return the first feature's entry of this name in `kind`, such as `engines`; None if there is none.

    If the name belongs to a known feature of the lab, no other feature is imported.
    """
    home = KEYS.get(name) or LAUNCHERS.get(name)
    candidates = list_features() if home is None else [_in_tree(home)] if is_available(home) else []
    entry = next((entries[name] for feature in candidates if name in (entries := getattr(feature, kind))), None)
    return import_entry(entry) if entry else None


def find_hook(name: str) -> Any:
    """Return a function that a feature offers to others; None if no feature does."""
    return find_entry("hooks", name)


def hooks(name: str) -> list[Any]:
    """Return the functions of all features with this name."""
    return [import_entry(feature.hooks[name]) for feature in list_features() if name in feature.hooks]


def find_view(name: str) -> Any:
    """Return the function that shows something another feature knows; None if no feature has it."""
    return find_entry("views", name)


def all_entries(kind: str) -> dict[str, Any]:
    """Return the entries of all features in `kind`, such as `verbs` or `record_files`, by name; import none."""
    return {name: entry for feature in list_features() for name, entry in getattr(feature, kind).items()}


def options_of(verb: str) -> list[Any]:
    """Import the modules that add options to a verb."""
    return [import_entry(feature.options[verb]) for feature in list_features() if verb in feature.options]


def scenario_keys() -> dict[str, Any]:
    """Return the dataclasses of the keys that features add to scenarios, by key, in the order of `KEYS`."""
    entries = all_entries("keys")
    return {name: import_entry(entries[name]) for name in dict.fromkeys([*KEYS, *entries]) if name in entries}


def feature_findings(name: str) -> Iterable[Any]:
    """Yield the entries of this name in `findings`, of the lab's features and of others."""
    for feature in (*map(_in_tree, filter(is_available, FINDINGS)), *installed_features()):
        if name in feature.findings:
            yield import_entry(feature.findings[name])


def find_owners(keys: Collection[str]) -> list[Feature]:
    """Return the features of the keys that a scenario uses, without importing others of the lab."""
    homes = dict.fromkeys(KEYS[key] for key in keys if key in KEYS)
    others = () if all(key in KEYS for key in keys) else list_features()
    return [*map(_in_tree, filter(is_available, homes)), *(one for one in others if one.name not in IN_TREE)]


def find_hook_of(keys: Collection[str], name: str) -> Any:
    """Return a function that a feature of one of these keys offers to the kernel; None if none does."""
    return next((import_entry(one.hooks[name]) for one in find_owners(keys) if name in one.hooks), None)


def load_plan_parts(keys: Collection[str] | None) -> list[Any]:
    """Import the functions that make parts of plans, of the features of these keys; None: of all."""
    features = list_features() if keys is None else find_owners(keys)
    return [import_entry(entry) for feature in features for entry in feature.parts]


def _in_tree(name: str) -> Feature:
    feature: Feature = import_entry(f"lab.features.{name}:FEATURE")
    return feature


def is_available(name: str) -> bool:
    """Return whether a feature of the lab and all that it needs exist; import no other feature."""
    return name in IN_TREE and all(map(is_available, _in_tree(name).needs))


def installed_features() -> tuple[Feature, ...]:
    """List the features of other packages by name; this process searches for them once."""
    global _installed_features
    if _installed_features is None:
        _installed_features = tuple(_find_installed_features())
    return _installed_features


def _find_installed_features() -> list[Feature]:
    """Search for them; import `importlib.metadata`, which is ten times slower, only if there are any."""
    sought = f"[{GROUP}]".encode()
    for folder in sys.path:
        try:
            distributions = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in distributions:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if sought not in file.read():
                        continue
            except OSError:
                continue
            from importlib.metadata import entry_points

            return [entry.load() for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)]
    return []


def bundled_path(name: str) -> Path:
    """Return the path of a bundled file or folder: lessons, pages of the docs, the Dockerfile.

    It is in the package if the lab is installed, otherwise in the root of a checkout.
    """
    from pathlib import Path

    package = Path(__file__).resolve().parent
    candidates = (package / name, package.parent / name)
    return next((path for path in candidates if path.exists()), candidates[0])
