"""Features: what each adds to the kernel, which there are, and how the kernel finds what it does not know itself.

A feature is a folder in `lab/features`, or a package of somebody else's that names its `Feature` as an entry point of
the group `lab.features`. The kernel imports none of them: it reads their values only where it meets a name that is not
its own (a verb, an option, an engine), so that they cost nothing where they are not used.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # not from typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path
    from typing import Any, NoReturn

IN_TREE = (
    "suite", "timeline", "traffic", "records", "watch", "html", "export", "calls", "training", "values", "links",
    "groups", "messages", "mismatches", "stragglers", "started", "compare", "projection", "score", "dumps", "grade",
    "lessons", "scaffold", "interactive", "copy", "image", "remote", "help", "faults", "chaos", "functions",
    "network_model", "pictures", "pytest", "packages", "launchers", "mpi", "gpu", "zygote", "slurm", "strict",
)  # fmt: skip
"""The folders of `lab/features`, in the order of `lab --help`."""
KEYS = {
    "needs": "mpi",
    "requirements": "packages",
    "predict": "lessons",
    "expect.calls": "calls",
    "expect.replicas": "training",
    "grade": "grade",
    "network": "faults",
    "faults": "faults",
    "rerun": "faults",
    "expect.detected_within": "faults",
}
"""The keys of scenarios that features of the lab add, with the feature of each, which is the only one that a file with
the key loads. In a mapping that is not the whole file, it is `expect.key`."""
LAUNCHERS = {"torchrun": "launchers", "mpirun": "launchers"}
"""The launchers that features of the lab add, with the feature of each."""
FINDINGS = (
    "groups", "messages", "mismatches", "training", "values", "links", "stragglers", "launchers", "started", "mpi",
)  # fmt: skip
"""The features of the lab that add findings; what asks for those loads no others, which takes long."""
GROUP = "lab.features"
"""The group of entry points by which other packages add features: the name of the feature = its module:attribute."""


class Feature:
    """What one feature adds. A module is named as `package.module`, something in it as `package.module:attribute`."""

    name: str
    """That of its folder."""
    needs: tuple[str, ...] = ()
    """Other features, without which this one is not there either."""
    verbs: Mapping[str, tuple[str, str]] = {}
    """The modules of verbs, by name, each with the line that `lab --help` has for it; see `lab.cli.call.Verb`."""
    options: Mapping[str, str] = {}
    """Modules that add options to verbs of others, by the name of the verb; see `lab.cli.call.Command`."""
    exports: Mapping[str, str] = {}
    """What `import lab` offers of it, by name."""
    views: Mapping[str, str] = {}
    """What others show of it where it is there, by what they ask for."""
    cluster: Mapping[str, str] = {}
    """Methods and properties that `Cluster` has of it, by name."""
    engines: Mapping[str, str] = {}
    """What provides nodes, by the name that `--engine` takes: a class; see `lab.engine.protocol.Engine`."""
    launchers: Mapping[str, str] = {}
    """What starts workers, by name: a class; see `lab.spec.launching.Launcher`."""
    keys: Mapping[str, str] = {}
    """The dataclasses that declare the keys that it adds to scenarios, by key; see `lab.spec.declare`."""
    findings: Mapping[str, str] = {}
    """What it adds to diagnoses: `kinds`, an enumeration (`lab.diagnosis.finding.Kind`); and rules, by when they are
    asked, see `lab.diagnosis.evidence`."""
    hooks: Mapping[str, str] = {}
    """Functions that the kernel, or another feature, calls where they are there, by name."""
    record_files: Mapping[str, str] = {}
    """What the files are that it adds to records, by name."""
    parts: tuple[str, ...] = ()
    """What makes a part of a plan of a scenario and options, if they ask for it; see `lab.plan.plan.Part`."""
    on_node: str = ""
    """A package that nodes get as `labnode.features.NAME.on_node`, beside `lab.node`, which they get as `labnode.node`;
    it imports that by relative imports, and needs Python 3.9, the standard library and torch."""

    def __init__(self, *, name: str, **parts: Any) -> None:
        if unknown := parts.keys() - Feature.__annotations__:
            raise TypeError(f"a feature has no {', '.join(sorted(unknown))}")
        self.__dict__.update(parts, name=name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a feature is not changed, and {name} is a part of {self.name}")

    def __repr__(self) -> str:
        return f"Feature(name={self.name!r})"


_all_features: tuple[Feature, ...] | None = None
_installed_features: tuple[Feature, ...] | None = None


def list_features() -> tuple[Feature, ...]:
    """Every feature whose needs are there: those that come with the lab, then those of other packages by name."""
    global _all_features
    if _all_features is None:
        every = [*map(_in_tree, IN_TREE), *installed_features()]
        names = {feature.name for feature in every}
        while missing := {feature.name for feature in every if not names.issuperset(feature.needs)} & names:
            names -= missing
        _all_features = tuple(feature for feature in every if feature.name in names)
    return _all_features


def import_entry(entry: str) -> Any:
    """What an entry names: a module, or something in one."""
    module, _, attributes = entry.partition(":")
    loaded: Any = import_module(module)
    for attribute in attributes.split(".") if attributes else ():
        loaded = getattr(loaded, attribute)
    return loaded


def find_entry(kind: str, name: str) -> Any:
    """What the first feature has under a name in its `kind`, such as `engines`; None where none that is there does.

    Of a name whose feature is known, no other feature is loaded.
    """
    home = KEYS.get(name) or LAUNCHERS.get(name)
    candidates = list_features() if home is None else [_in_tree(home)] if is_available(home) else []
    entry = next((entries[name] for feature in candidates if name in (entries := getattr(feature, kind))), None)
    return import_entry(entry) if entry else None


def find_hook(name: str) -> Any:
    """A function that some feature offers to others; None where none does."""
    return find_entry("hooks", name)


def hooks(name: str) -> list[Any]:
    """The functions of all features under a name."""
    return [import_entry(feature.hooks[name]) for feature in list_features() if name in feature.hooks]


def find_view(name: str) -> Any:
    """What shows something that another feature knows of; None where no feature does."""
    return find_entry("views", name)


def entry_names(kind: str) -> list[str]:
    """The names that all features have in their `kind`."""
    return [name for feature in list_features() for name in getattr(feature, kind)]


def list_verbs() -> dict[str, tuple[str, str]]:
    """The verbs of all features: the module of each, and its line of help."""
    return {verb: entry for feature in list_features() for verb, entry in feature.verbs.items()}


def record_files() -> dict[str, str]:
    """What the files are that features add to records, by name."""
    return {name: what for feature in list_features() for name, what in feature.record_files.items()}


def options_of(verb: str) -> list[Any]:
    """The modules that add options to a verb."""
    return [import_entry(feature.options[verb]) for feature in list_features() if verb in feature.options]


def scenario_keys() -> dict[str, Any]:
    """The dataclasses that declare the keys which features add to scenarios, by key, in the order of `KEYS`."""
    entries = {name: entry for feature in list_features() for name, entry in feature.keys.items()}
    return {name: import_entry(entries[name]) for name in dict.fromkeys([*KEYS, *entries]) if name in entries}


def feature_findings(name: str) -> Iterable[Any]:
    """What the features of the lab and others have under a name in `findings`."""
    for feature in (*map(_in_tree, filter(is_available, FINDINGS)), *installed_features()):
        if name in feature.findings:
            yield import_entry(feature.findings[name])


def find_owners(keys: Collection[str]) -> list[Feature]:
    """The features of keys that a scenario uses; no others of the lab are loaded."""
    homes = dict.fromkeys(KEYS[key] for key in keys if key in KEYS)
    others = () if all(key in KEYS for key in keys) else list_features()
    return [*map(_in_tree, filter(is_available, homes)), *(one for one in others if one.name not in IN_TREE)]


def load_plan_parts(keys: Collection[str] | None) -> list[Any]:
    """What makes parts of plans, of the features of these keys; None: of all."""
    return [
        import_entry(entry)
        for feature in (list_features() if keys is None else find_owners(keys))
        for entry in feature.parts
    ]


def _in_tree(name: str) -> Feature:
    feature: Feature = import_entry(f"lab.features.{name}:FEATURE")
    return feature


def is_available(name: str) -> bool:
    """Whether a feature of the lab is there, and so is all that it needs; loads no other."""
    return name in IN_TREE and all(map(is_available, _in_tree(name).needs))


def installed_features() -> tuple[Feature, ...]:
    """The features of other packages, by name; this process searches for them once."""
    global _installed_features
    if _installed_features is None:
        _installed_features = tuple(_find_installed_features())
    return _installed_features


def _find_installed_features() -> list[Feature]:
    """Find them, by name; `importlib.metadata` takes ten times as long, and is asked if there is one."""
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
    """Where something lies that comes with the lab beside its modules: lessons, pages of the docs, the Dockerfile.

    It is in the package when the lab is installed, in the root of a checkout otherwise.
    """
    from pathlib import Path

    package = Path(__file__).resolve().parent
    candidates = (package / name, package.parent / name)
    return next((path for path in candidates if path.exists()), candidates[0])
