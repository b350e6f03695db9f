"""Features: what each adds to the kernel, which there are, and how the kernel finds what it does not know itself.

A feature is a folder in `lab/features`, or a package of somebody else's that names its `Feature` as an entry point of
the group `lab.features`. The kernel imports none of them: it reads their values only where it meets a name that is not
its own (a verb, an option, an engine), so that they cost nothing where they are not used.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any, NoReturn

IN_TREE = (
    "suite",
    "timeline",
    "traffic",
    "records",
    "watch",
    "html",
    "export",
    "calls",
    "training",
    "values",
    "links",
    "stragglers",
    "compare",
    "projection",
    "score",
    "dumps",
    "grade",
    "lessons",
    "scaffold",
    "schema",
    "interactive",
    "copy",
    "image",
    "remote",
    "completion",
    "help",
    "faults",
    "chaos",
    "functions",
    "network_model",
    "notebook",
    "pictures",
    "pytest",
    "packages",
    "launchers",
    "mpi",
    "gpu",
    "zygote",
    "swarm",
    "slurm",
)
"""The folders of `lab/features`, in the order of `lab --help`."""
KEYS = {
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
FINDINGS = ("training", "values", "links", "stragglers")
"""The features of the lab that add findings; what asks for those loads no others, which takes long."""
GROUP = "lab.features"
"""The group of entry points by which other packages add features: the name of the feature = its module:attribute."""


class Feature:
    """What one feature adds. A module is named as `package.module`, something in it as `package.module:attribute`.

    Args:
        name: of the feature, which is that of its folder.
        needs: other features, without which this one is not there either.
        verbs: the modules of verbs, by name, each with the line that `lab --help` has for it; see `lab.cli.call.Verb`.
        options: modules that add options to verbs of others, by the name of the verb; see `lab.cli.call.Options`.
        exports: what `import lab` offers of it, by name.
        views: what others show of it where it is there, by what they ask for.
        cluster: methods and properties that `Cluster` has of it, by name.
        engines: what provides nodes, by the name that `--engine` takes: a class; see `lab.engine.protocol.Engine`.
        launchers: what starts workers, by name: a class; see `lab.spec.launching.Launcher`.
        keys: the dataclasses that declare the keys that it adds to scenarios, by key; see `lab.spec.declare`.
        findings: what it adds to diagnoses: `kinds`, an enumeration (`lab.diagnosis.finding.Kind`) in the module that
            has the facts of these findings too; `words`, what renders them (`lab.diagnosis.wording.WordTable`); and
            rules, by when they are asked, see `lab.diagnosis.rules`.
        hooks: functions that the kernel, or another feature, calls where they are there, by name.
        parts: what makes a part of a plan of a scenario and options, if they ask for it; see `lab.plan.part`.
        on_node: a package that nodes get as `labnode.features.NAME.on_node`, beside `lab.node`, which they get as
            `labnode.node`; it imports that by relative imports, and needs Python 3.9, the standard library and torch.
    """

    def __init__(
        self,
        *,
        name: str,
        needs: tuple[str, ...] = (),
        verbs: Mapping[str, tuple[str, str]] | None = None,
        options: Mapping[str, str] | None = None,
        exports: Mapping[str, str] | None = None,
        views: Mapping[str, str] | None = None,
        cluster: Mapping[str, str] | None = None,
        engines: Mapping[str, str] | None = None,
        keys: Mapping[str, str] | None = None,
        launchers: Mapping[str, str] | None = None,
        findings: Mapping[str, str] | None = None,
        hooks: Mapping[str, str] | None = None,
        parts: tuple[str, ...] = (),
        on_node: str = "",
    ) -> None:
        self.__dict__.update(
            name=name,
            needs=needs,
            verbs=verbs or {},
            options=options or {},
            exports=exports or {},
            views=views or {},
            cluster=cluster or {},
            engines=engines or {},
            keys=keys or {},
            launchers=launchers or {},
            findings=findings or {},
            hooks=hooks or {},
            parts=parts,
            on_node=on_node,
        )

    if TYPE_CHECKING:
        name: str
        needs: tuple[str, ...]
        verbs: Mapping[str, tuple[str, str]]
        options: Mapping[str, str]
        exports: Mapping[str, str]
        views: Mapping[str, str]
        cluster: Mapping[str, str]
        engines: Mapping[str, str]
        keys: Mapping[str, str]
        launchers: Mapping[str, str]
        findings: Mapping[str, str]
        hooks: Mapping[str, str]
        parts: tuple[str, ...]
        on_node: str

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a feature is not changed, and {name} is a part of {self.name}")

    def __repr__(self) -> str:
        return f"Feature(name={self.name!r})"


_found: tuple[Feature, ...] | None = None


def features() -> tuple[Feature, ...]:
    """Every feature whose needs are there: those that come with the lab, then those of other packages by name."""
    global _found
    if _found is None:
        every = [*_in_tree(), *_installed()]
        names = {feature.name for feature in every}
        while missing := {feature.name for feature in every if not names.issuperset(feature.needs)} & names:
            names -= missing
        _found = tuple(feature for feature in every if feature.name in names)
    return _found


def load(entry: str) -> Any:
    """What an entry names: a module, or something in one."""
    from importlib import import_module

    module, _, attributes = entry.partition(":")
    loaded = import_module(module)
    for attribute in attributes.split(".") if attributes else ():
        loaded = getattr(loaded, attribute)
    return loaded


def verbs() -> dict[str, tuple[str, str]]:
    """The verbs of all features: the module of each, and its line of help."""
    return {verb: entry for feature in features() for verb, entry in feature.verbs.items()}


def options_of(verb: str) -> list[Any]:
    """The modules that add options to a verb."""
    return [load(feature.options[verb]) for feature in features() if verb in feature.options]


def export(name: str) -> Any:
    """What a feature offers under a name; None where none does."""
    return _first("exports", name)


def view(name: str) -> Any:
    """What shows something that another feature knows of; None where no feature does."""
    return _first("views", name)


def cluster_member(name: str) -> Any:
    """A method or property that `Cluster` has of a feature; None where no feature has one of that name."""
    return _first("cluster", name)


def engine(name: str) -> Any:
    """The class of an engine that a feature adds; None where none adds one of that name."""
    return _first("engines", name)


def engines() -> list[str]:
    """The names of the engines of all features."""
    return [name for feature in features() for name in feature.engines]


def scenario_key(name: str) -> Any:
    """The dataclass that declares a key which a feature adds to scenarios; None where no feature that is there does."""
    return _first("keys", name, KEYS)


def scenario_keys() -> dict[str, Any]:
    """The dataclasses that declare the keys which features add to scenarios, by key, in the order of `KEYS`."""
    found = {name: entry for feature in features() for name, entry in feature.keys.items()}
    return {name: load(found[name]) for name in dict.fromkeys([*KEYS, *found]) if name in found}


def launcher(name: str) -> Any:
    """The class of a launcher that a feature adds; None where no feature that is there does."""
    return _first("launchers", name, LAUNCHERS)


def launchers() -> list[str]:
    """The names of the launchers of all features."""
    return [name for feature in features() for name in feature.launchers]


def hooks(name: str) -> list[Any]:
    """What all features have for one place of the kernel."""
    return [load(feature.hooks[name]) for feature in features() if name in feature.hooks]


def hook(name: str) -> Any:
    """A function that some feature offers to others; None where none does."""
    return _first("hooks", name, KEYS)


def feature_findings(name: str) -> Iterable[Any]:
    """What features have under a name in `findings`; those of the lab first."""
    for feature in (*map(_one, filter(is_there, FINDINGS)), *_installed()):
        if name in feature.findings:
            yield load(feature.findings[name])


def owners(keys: Collection[str]) -> list[Feature]:
    """The features of keys that a scenario uses; no others of the lab are loaded."""
    names = dict.fromkeys(KEYS[key] for key in keys if key in KEYS)
    others = () if all(key in KEYS for key in keys) else features()
    return [*map(_one, filter(is_there, names)), *(one for one in others if one.name not in IN_TREE)]


def parts(keys: Collection[str] | None) -> list[Any]:
    """What makes parts of plans, of the features of these keys; None: of all."""
    return [load(entry) for feature in (features() if keys is None else owners(keys)) for entry in feature.parts]


def _first(kind: str, name: str, homes: Mapping[str, str] | None = None) -> Any:
    """What the first feature has under a name; `homes` has the features of names that are looked for in no other."""
    if homes and name in homes:
        entry = getattr(_one(homes[name]), kind).get(name) if is_there(homes[name]) else None
        return load(entry) if entry else None
    found = next((entries[name] for feature in features() if name in (entries := getattr(feature, kind))), None)
    return load(found) if found else None


def _in_tree() -> Iterable[Feature]:
    return map(_one, IN_TREE)


def _one(name: str) -> Feature:
    feature: Feature = load(f"lab.features.{name}.feature:FEATURE")
    return feature


def is_there(name: str) -> bool:
    """Whether a feature of the lab is there, and so is all that it needs; loads no other."""
    return name in IN_TREE and all(map(is_there, _one(name).needs))


def _installed() -> Iterable[Feature]:
    if not _any_installed():
        return []
    from importlib.metadata import entry_points

    return [entry.load() for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)]


def _any_installed() -> bool:
    """Whether any distribution names a feature. Asking `importlib.metadata` takes ten times as long."""
    sought = f"[{GROUP}]".encode()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                        if sought in file.read():
                            return True
                except OSError:
                    pass
    return False
