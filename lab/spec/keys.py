"""Define the kinds of single scenario keys: files, folders, variables, the backend, and the expected results."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from lab.errors import ScenarioError, UsageError
from lab.frozen import Frozen
from lab.spec import kinds, reading
from lab.spec.expressions import RankVariables, evaluate_expected, is_expression
from lab.spec.kinds import NODE, Kind, World, list_of, read_or_refuse, read_text
from lab.words import join_words

_SCRIPT = "the path of a script next to this file, such as train.py"
_ROOT = "a folder that contains the script: `.` or one below"
_CHECK = "file.py:function, both in the folder of the script"
_OUTPUT = "a file, a folder, or a pattern below the working folder, such as out or '*.pt'"
_OUTPUTS = "a list of files, folders, and patterns below the working folder, such as [out, '*.pt'], or false"
_BELOW = r"^(?!/)(?!(.*/)?\.\.(/|$))"
"""Start of a relative path without `..`, for the schema."""
_CHECK_MAX_BYTES = 1024 * 1024


def script_kind() -> Kind:
    """Make the kind of the script: a file in the folder of the YAML file or below; absolute links are not followed."""

    def read(value: reading.Value) -> Path:
        text = read_text(value, _SCRIPT)
        folder = value.reading.folder
        path = resolve_inside(value, text, folder, _SCRIPT)
        if os.path.isfile(path):
            return path
        if os.path.isdir(path):
            names = reading.names_in(path, ".py")
            meant = f" (did you mean {f'{path.name}/{names[0]}'!r}?)" if len(names) == 1 else ""
            raise value.refused(_SCRIPT, f", which is a folder{meant}")
        absent = f", which does not exist{_meant(text, folder)}"
        raise value.refused(_SCRIPT, ", which is not a regular file" if os.path.exists(path) else absent)

    return Kind(_SCRIPT, read, {"type": "string", "pattern": f"{_BELOW}."}, lambda path: path.name)


def root_kind() -> Kind:
    """Make the kind of a folder that contains the script: that of the YAML file, or one below."""

    def read(value: reading.Value) -> Path:
        path = resolve_inside(value, read_text(value, _ROOT), value.reading.folder, _ROOT)
        if not value.reading.known.get("script", path).is_relative_to(path):
            raise value.refused(_ROOT, ", which does not contain the script")
        return path

    return Kind(_ROOT, read, {"type": "string", "pattern": f"{_BELOW}."}, lambda _: ".")  # the record has its files


def check_kind() -> Kind:
    """Make the kind of a `file.py:function` in the shipped folder. The file is only parsed here; it runs in a node."""

    def read(value: reading.Value) -> str:
        text = read_text(value, _CHECK, quotable=False)
        file, colon, function = text.partition(":")
        if not colon or not file.endswith(".py") or not function.isidentifier():
            raise value.refused(_CHECK)
        if "script" not in value.reading.known:  # which is a separate problem
            return text
        folder = value.reading.known.get("folder") or value.reading.known["script"].parent
        path = resolve_inside(value, file, folder, _CHECK)
        if not os.path.isfile(path):
            raise value.refused(_CHECK, f", whose file does not exist{_meant(file, folder)}")
        if (names := _defined_names(path)) is not None and function not in names:
            raise value.refused(_CHECK, f", but {file} defines no {function}{reading.did_you_mean(function, names)}")
        return text

    return Kind(_CHECK, read, {"type": "string", "pattern": rf"{_BELOW}[^:]+\.py:[^\W\d]\w*$"})


def outputs_kind() -> Kind:
    """Make the kind of names and patterns of files in the working folder; `false` (None here) means no files."""

    def read_one(value: reading.Value) -> str:
        text = read_text(value, _OUTPUT, quotable=False)
        parts = PurePosixPath(text).parts
        if not parts or text.startswith("/") or ".." in parts:
            raise value.refused(_OUTPUT, ", which leads out of it" if parts else "")
        return str(PurePosixPath(text))

    files = list_of(Kind(_OUTPUT, read_one, {"type": "string", "minLength": 1}), _OUTPUTS)

    def read(value: reading.Value) -> Any:
        if value.kind == "boolean":
            return () if value.raw.lower() in reading.TRUE else None
        return files.read(value)

    schema = {"anyOf": [files.schema, {"type": "boolean"}]}
    return Kind(_OUTPUTS, read, schema, lambda data: False if data is None else list(data))


def script_problem(path: Path) -> str:
    """Explain why a path is not a script; empty if it is one."""
    if os.path.isdir(path):
        return reading.describe_contents("is a folder; allowed: a script", reading.names_in(path, ".py"))
    if os.path.isfile(path):
        return "" if os.access(path, os.R_OK) else "cannot be read: Permission denied"
    if os.path.exists(path):
        return "is not a regular file; allowed: a script"
    return reading.missing_file("script", path, ".py")


def missing_script(path: Path) -> str:
    """Write the message for a scenario file without a script."""
    names = reading.names_in(path.parent, ".py")
    same = f"{path.stem}.py"
    name = same if same in names else names[0] if len(names) == 1 else ""
    meant = f" (did you mean 'script: {name}'?)" if name else ""
    return f"script: missing{meant}; allowed: {_SCRIPT.replace('such as ', 'such as script: ')}"


def resolve_inside(value: reading.Value, path: str, folder: Path, allowed: str) -> Path:
    """Return the absolute path of something in a folder or below; links must not lead out of the folder."""
    if not path.strip():
        raise value.refused(allowed)
    if os.path.isabs(path):
        raise value.refused(allowed, ", which is absolute")
    if ".." in re.split(r"[/\\]", path):
        raise value.refused(allowed, ", which leaves the folder by '..'")
    resolved = Path(os.path.abspath(folder / path))
    real, real_folder = os.path.realpath(resolved), os.path.realpath(folder)
    if os.path.commonpath((real, real_folder)) != real_folder:
        raise value.refused(allowed, f", a link that leaves the folder to {reading.clip_repr(real, 1000)}")
    return resolved


def _meant(text: str, folder: Path) -> str:
    path = PurePosixPath(text)
    names = reading.names_in(folder / path.parent, ".py")
    if match := reading.find_near_match(path.name, names):
        return f" (did you mean {str(path.parent / match)!r}?)"
    return reading.describe_contents("", names, "the folder")


def _defined_names(path: Path) -> set[str] | None:
    """Return each name that a Python file can bind; None if only a run of the file could show them."""
    import ast  # only scenarios with a check need it

    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(_CHECK_MAX_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parts = [*ast.walk(tree)]
    names = {part.name for part in parts if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    names |= {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    names |= {(part.asname or part.name).partition(".")[0] for part in parts if isinstance(part, ast.alias)}
    return None if "*" in names else names


LAB_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""Variables that the lab sets for each worker, as torchrun does, in addition to those in `LAB_PREFIXES`."""
LAB_PREFIXES = ("TORCHELASTIC_", "LAB_")
SETTABLE = ("LAB_RECORDER", "LAB_TRACE_VALUES", "LAB_SEED", "LAB_STRICT_ORDER")
"""Variables with such a prefix that a scenario can set: recorder settings, `lab test --seed`, `--strict-order`."""

_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"


def variable_problem(name: str) -> str:
    """Explain why a scenario cannot set a variable of this name; empty if it can."""
    if not re.fullmatch(_VARIABLE, name):
        return f"found the name {reading.clip_repr(name)}; allowed: letters, digits, and _, no digit first"
    if name in LAB_VARIABLES or (name.startswith(LAB_PREFIXES) and name not in SETTABLE):
        return f"found {name}, which the lab sets itself; allowed: any other variable"
    return ""


def _named(allowed: str, problem_of: Callable[[str], str], item: Kind, names: Mapping[str, Any]) -> Kind:
    """Make the kind of a mapping from names to values.

    Args:
        allowed: the allowed values, in words.
        problem_of: explains why a name is not allowed; empty if it is.
        item: kind of the values.
        names: JSON Schema of the names.
    """

    def read_one(key: reading.Value, each: reading.Value) -> tuple[str, Any]:
        name = key.as_key()
        if problem := problem_of(name):
            raise key.problem(problem)
        return name, item.read(each)

    schema = {"type": "object", "propertyNames": names, "additionalProperties": item.schema}

    def dump(data: Mapping[str, Any]) -> dict[str, Any]:
        return {name: item.dump(each) for name, each in data.items()}

    return Kind(allowed, lambda value: value.mapping(allowed, read_one), schema, dump)


def environment_kind() -> Kind:
    """Make the kind of variables by name; a number keeps its spelling in the file."""
    reserved = [{"pattern": f"^(?!({'|'.join(SETTABLE)})$)({'|'.join(LAB_PREFIXES)})"}, {"enum": list(LAB_VARIABLES)}]
    names = {"pattern": f"^{_VARIABLE}$", "not": {"anyOf": reserved}}
    kind = _named("a mapping of variables to text", variable_problem, kinds.text_or_number(), names)
    return kind._replace(allowed=f"{kind.allowed} or numbers, without those that the lab sets itself")


_DATA_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_FOLDER = "the path of a folder on this machine, such as ../datasets/mnist"


def data_folders() -> Kind:
    """Make the kind of named folders of this machine that ranks read; paths are relative to the YAML file."""

    def read_folder(value: reading.Value) -> Path:
        path = Path(os.path.abspath(value.reading.folder / os.path.expanduser(read_text(value, _FOLDER))))
        if problem := folder_problem(path):
            raise value.refused(_FOLDER, f", but {problem}")
        return path

    allowed = "a mapping of names to folders, such as {mnist: ../datasets/mnist}"
    folder = Kind(_FOLDER, read_folder, {"type": "string"}, str)
    return _named(allowed, data_name_problem, folder, {"pattern": f"^{_DATA_NAME}$"})


def checked_folders(data: Mapping[str, str | Path]) -> dict[str, Path]:
    """Validate folders that come from elsewhere than a file; return absolute paths.

    Raises:
        UsageError: a name is not allowed, or a folder is unreadable.
    """
    folders = {name: Path(os.path.abspath(os.path.expanduser(folder))) for name, folder in data.items()}
    for name, folder in folders.items():
        if problem := data_name_problem(name) or folder_problem(folder):
            raise UsageError(f"data: {problem}")
    return folders


def data_name_problem(name: str) -> str:
    """Explain why data cannot have this name; empty if it can."""
    allowed = "letters, digits, '.', -, and _, up to 63, a letter or digit first"
    return "" if re.fullmatch(_DATA_NAME, name) else f"found the name {reading.clip_repr(name)}; allowed: {allowed}"


def folder_problem(path: Path) -> str:
    """Explain why ranks cannot read a folder; empty if they can."""
    name = reading.clip_repr(str(path), 1000)
    if not os.path.exists(path):
        folders = [folder for folder in reading.names_in(path.parent) if (path.parent / folder).is_dir()]
        return f"{name} does not exist on this machine{_near_path(path, folders)}"
    if not os.path.isdir(path):
        return f"{name} is not a folder"
    return "" if os.access(path, os.R_OK | os.X_OK) else f"{name} cannot be read: Permission denied"


def _near_path(path: Path, names: Sequence[str]) -> str:
    match = reading.find_near_match(path.name, names)
    return f" (did you mean {str(path.parent / match)!r}?)" if match else ""


_OWN = "bin|boot|dev|etc|init|lib.*|nix|opt|proc|root|run|sbin|shared|snap|sys|tmp|usr|var"
"""Folders in `/` with programs, their settings, and the lab's own files in a node, as a regular expression."""
_VOLUME = "/host/folder:/node/folder, with :ro at its end for read-only"


class Volume(Frozen):
    """A host folder that each node sees; opt-in, because everything else is shipped."""

    source: Path
    """Absolute path on the host."""
    target: str
    """Absolute path in the node."""
    read_only: bool = False

    def __str__(self) -> str:
        """Format the volume as scenario files and `--volume` write it."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


def volume_list() -> Kind:
    """Make the kind of host folders for the nodes; a relative source is relative to the YAML file."""
    one = Kind(_VOLUME, _read_volume, {"type": "string", "pattern": "^[^:]+:/[^:]+(:(ro|rw))?$"}, str)
    volumes = list_of(one, f"a list of volumes, each {_VOLUME}")

    def read(value: reading.Value) -> Any:
        lines: dict[str, int] = {}

        def read_new(item: reading.Value) -> Volume:
            volume = _read_volume(item)
            if volume.target in lines:
                already = f", but line {lines[volume.target]} mounts {volume.target} already"
                raise item.refused("one volume for each folder in the node", already)
            lines[volume.target] = item.where.line
            return volume

        return list_of(one._replace(read=read_new), volumes.allowed).read(value)

    return volumes._replace(read=read)


def _read_volume(value: reading.Value) -> Volume:
    text = read_text(value, _VOLUME, quotable=False)
    try:
        return parse_volume(text, value.reading.folder)
    except UsageError as error:
        raise value.refused(_VOLUME, error.message) from None


def parse_volume(text: str, folder: Path) -> Volume:
    """Parse a volume such as `../data:/data:ro`; a relative source is relative to the folder.

    Raises:
        UsageError: it is not a volume, or must not be mounted; the message is a clause, empty for any other syntax.
    """
    source, _, rest = text.partition(":")
    target, colon, mode = rest.partition(":")
    if not source or not target or (colon and mode not in ("ro", "rw")):
        raise UsageError("")
    if not target.startswith("/") or ".." in PurePosixPath(target).parts or not target.strip("/."):
        raise UsageError("; the folder in the node is absolute, without '..', and not /")
    target = plain_target(target)
    path = Path(os.path.abspath(folder / os.path.expanduser(source)))
    if not os.path.exists(path):
        meant = _near_path(path, reading.names_in(path.parent))
        raise UsageError(f", but {reading.clip_repr(str(path), 1000)} does not exist on this host{meant}")
    if (problem := own_folder(target)) and target != str(path):
        raise UsageError(f", but {problem}: mount it in /data, /mnt, or a folder that nodes do not have")
    return Volume(source=path, target=target, read_only=mode == "ro")


def plain_target(target: str) -> str:
    """Normalize a folder of a node: no empty parts, because Python treats a leading `//` as another path."""
    return "/" + "/".join(part for part in target.split("/") if part not in ("", "."))


def own_folder(target: str) -> str:
    """Return a clause that names the node's own folder that a volume would hide; empty if it hides none."""
    top = target.split("/")[1]
    return f"/{top} is the node's own" if re.fullmatch(_OWN, top) else ""


BACKENDS = ("gloo", "mpi", "nccl")
STARTED_BY = {"mpi": "mpirun"}
"""The only launcher that can start the ranks of a backend."""


def check_backend(name: str) -> str:
    """Return the name of a backend if it exists.

    Raises:
        UsageError: the lab has no backend of that name.
    """
    if name not in BACKENDS:
        why = f"the lab has no backend {name!r}{reading.did_you_mean(name, BACKENDS)}; allowed: {join_words(BACKENDS)}"
        raise UsageError(why, "docs/backends.md describes what each of them can do")
    return name


_MOST_RESTARTS = 1000
_TRIED_RANKS = 4
_IMAGINED_NODES = 7
"""No likely constant of an expression, so that none divides by zero by chance."""
_RANK_OR_NODE = ({"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{NODE}$"})
RANK_SCHEMA = {"type": "object", "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"}}


def sample_variables(world: World, rank: int | None) -> Sequence[RankVariables]:
    """Return variables to try an expression with before the run: of its rank, or of a sample of all ranks."""
    if not world.size or not world.nodes or not world.nproc_per_node:
        return ()
    few = sorted({*range(min(world.size, _TRIED_RANKS)), world.size - 1})
    return [RankVariables.of(one, world.nodes, world.nproc_per_node) for one in (few if rank is None else [rank])]


def culprit_kind() -> Kind:
    """Make the kind of the expected culprit: a rank or a node."""
    allowed = "a rank, 0 or more, or a node such as node2"

    def read(value: reading.Value) -> Any:
        if value.kind == "text" and not re.fullmatch(NODE, value.raw):
            raise value.refused(allowed)
        return (kinds.node_kind() if value.kind == "text" else kinds.rank_kind()).read(value)

    return Kind(allowed, read, {"oneOf": [*_RANK_OR_NODE]})


def restarts_kind() -> Kind:
    """Make the kind of expected restarts: their number, or who failed first each time."""
    count, who = kinds.whole_number(0, _MOST_RESTARTS), "a rank, a node such as node2, or null if no rank failed"

    def read_culprit(value: reading.Value) -> Any:
        if value.kind == "nothing":
            return None
        if value.kind == "text" and re.fullmatch(NODE, value.raw):
            return value.raw
        return read_or_refuse(kinds.whole_number(0, kinds.MAX_RANK), value, who)

    item = {"oneOf": [*_RANK_OR_NODE, {"type": "null"}]}
    each = list_of(Kind(who, read_culprit, item), "a list of who failed first, such as [1, node2]")
    allowed = f"{count.allowed}, or {each.allowed}"
    return Kind(
        allowed,
        lambda value: each.read(value) if value.kind == "list" else read_or_refuse(count, value, allowed),
        {"oneOf": [count.schema, each.schema]},
        lambda data: data if isinstance(data, int) else list(data),
    )


def per_rank(item: Kind) -> Kind:
    """Make the kind of a mapping from ranks to values."""
    allowed = "a mapping whose keys are ranks, such as {0: ...}"
    schema = {**RANK_SCHEMA, "additionalProperties": item.schema}
    read = partial(by_rank, allowed=allowed, read=lambda each, _: item.read(each))
    return Kind(f"{allowed}, to {item.allowed}", read, schema, dict)


def notes_kind() -> Kind:
    """Make the kind of expected values by note: plain data, in which strings can be arithmetic."""
    allowed = "a mapping from the names of notes to values"

    def read_one(key: reading.Value, item: reading.Value) -> tuple[str, Any]:
        pairs = item.pairs("") if item.kind == "mapping" else []
        is_per_rank = pairs and all(key.kind == "integer" for key, _ in pairs)
        return key.as_key(), by_rank(item, "", _plain) if is_per_rank else _plain(item, None)

    return Kind(allowed, lambda value: value.mapping(allowed, read_one), {"type": "object"}, dict)


def by_rank(value: reading.Value, allowed: str, read: Callable[[reading.Value, int], Any]) -> dict[int, Any]:
    """Read a mapping from ranks; pass each value with its rank to `read`. Invalid ranks are problems."""

    def read_one(key: reading.Value, item: reading.Value) -> tuple[int, Any]:
        try:
            number = kinds.rank_kind().read(key)
        except reading.InvalidError:
            quotes = ", without quotes" if key.kind == "text" else ""
            ranks = World.of(value.reading).allowed
            raise key.problem(f"found {key.describe()} as a key; allowed: {ranks}{quotes}") from None
        return number, read(item, number)

    return value.mapping(allowed, read_one)


def _plain(value: reading.Value, rank: int | None) -> Any:
    """Read plain data, and try each expression in it for some of its ranks."""
    if value.kind == "list":
        return [_plain(item, rank) for item in value.items("")]
    if value.kind == "mapping":
        data = {}
        for key, item in value.pairs(""):
            if key.kind == "integer":
                allowed = "text; put a mapping per rank directly under the name of the note"
                raise key.problem(f"found the number {key.raw} as a key; allowed: {allowed}")
            data[key.as_key()] = _plain(item, rank)
        return data
    scalar = kinds.read_scalar(value)
    try:
        if isinstance(scalar, str) and is_expression(scalar):
            _try(scalar, World.of(value.reading), rank)
    except ScenarioError as error:
        raise value.problem(error.message) from None
    return scalar


def _try(expression: str, world: World, rank: int | None) -> None:
    """Refuse an expression that fails on a known rank, or on all of an imagined world if the size is unknown."""
    samples = sample_variables(world, rank) or sample_variables(_imagine(world, rank or 0), rank)
    errors = []
    for variables in samples:
        try:
            evaluate_expected(expression, variables)
        except ScenarioError as error:
            errors.append(error)
    if errors and (world.size or len(errors) == len(samples)):
        raise errors[0]


def _imagine(world: World, rank: int) -> World:
    """Return a world that a scenario without a size allows, and that has this rank."""
    nodes = world.nodes or rank + _IMAGINED_NODES
    return World(nodes, world.nproc_per_node or rank // nodes + 1)
