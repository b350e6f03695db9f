"""The files of a scenario: its script and its check."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from lab.spec.kinds import Kind, list_of, read_text
from lab.spec.reading import TRUE, Value, did_you_mean, holding, missing_file, names_in, near, shown

_SCRIPT = "the path of a script beside this file, such as train.py"
_CHECK = "file.py:function, both in the folder of the script"
_OUTPUT = "a file, a folder or a pattern below the working folder, such as out or '*.pt'"
_OUTPUTS = "a list of files, folders and patterns below the working folder, such as [out, '*.pt'], or false"
_BELOW = r"^(?!/)(?!(.*/)?\.\.(/|$))"
"""How a path begins that leads neither up nor away, in the schema."""
_CHECK_MAX_BYTES = 1024 * 1024


def script() -> Kind:
    """The script: a file in the folder of the YAML file or below it; links in its absolute path are not followed."""

    def read(value: Value) -> Path:
        text = read_text(value, _SCRIPT)
        folder = value.reading.folder
        path = inside(value, text, folder, _SCRIPT)
        if os.path.isdir(path):
            names = names_in(path, ".py")
            meant = f" (did you mean {f'{path.name}/{names[0]}'!r}?)" if len(names) == 1 else ""
            raise value.refused(_SCRIPT, f", which is a folder{meant}")
        if os.path.exists(path) and not os.path.isfile(path):
            raise value.refused(_SCRIPT, ", which is not a regular file")
        if not os.path.isfile(path):
            raise value.refused(_SCRIPT, f", which does not exist{_meant(text, folder)}")
        return path

    return Kind(_SCRIPT, read, {"type": "string", "pattern": f"{_BELOW}."}, lambda path: path.name)


def check() -> Kind:
    """A `file.py:function` beside the script. The file is parsed, never run: it runs inside a node."""

    def read(value: Value) -> str:
        text = read_text(value, _CHECK, quotable=False)
        file, colon, function = text.partition(":")
        if not colon or not file.endswith(".py") or not function.isidentifier():
            raise value.refused(_CHECK)
        if "script" not in value.reading.known:  # a problem of its own
            return text
        folder = value.reading.known["script"].parent
        path = inside(value, file, folder, _CHECK)
        if not os.path.isfile(path):
            raise value.refused(_CHECK, f", whose file does not exist{_meant(file, folder)}")
        names = _defined_names(path)
        if names is not None and function not in names:
            raise value.refused(_CHECK, f", but {file} defines no {function}{did_you_mean(function, names)}")
        return text

    return Kind(_CHECK, read, {"type": "string", "pattern": rf"{_BELOW}[^:]+\.py:[^\W\d]\w*$"})


def outputs() -> Kind:
    """Names and patterns of files in the working folder; of none, `false`, which is None here."""
    files = list_of(Kind(_OUTPUT, _read_output, {"type": "string", "minLength": 1}), _OUTPUTS)

    def read(value: Value) -> tuple[str, ...] | None:
        if value.kind == "boolean":
            return () if value.raw.lower() in TRUE else None
        found: tuple[str, ...] = files.read(value)
        return found

    schema = {"anyOf": [files.schema, {"type": "boolean"}]}
    return Kind(_OUTPUTS, read, schema, lambda data: False if data is None else list(data))


def _read_output(value: Value) -> str:
    text = read_text(value, _OUTPUT, quotable=False)
    parts = PurePosixPath(text).parts
    if not parts or text.startswith("/") or ".." in parts:
        raise value.refused(_OUTPUT, ", which leads out of it" if parts else "")
    return str(PurePosixPath(text))


def script_problem(path: Path) -> str:
    """Why a path that a person named is not that of a script; empty if it is."""
    if os.path.isdir(path):
        return holding("is a folder; allowed: a script", names_in(path, ".py"))
    if os.path.isfile(path):
        return "" if os.access(path, os.R_OK) else "cannot be read: Permission denied"
    return "is not a regular file; allowed: a script" if os.path.exists(path) else missing_file("script", path, ".py")


def missing_script(path: Path) -> str:
    """What a person reads whose scenario file names no script."""
    names = names_in(path.parent, ".py")
    same = f"{path.stem}.py"
    name = same if same in names else names[0] if len(names) == 1 else ""
    meant = f" (did you mean 'script: {name}'?)" if name else ""
    return f"script: missing{meant}; allowed: {_SCRIPT.replace('such as ', 'such as script: ')}"


def inside(value: Value, path: str, folder: Path, allowed: str) -> Path:
    """The absolute path of something in a folder or below it; links in it may not lead out."""
    if not path.strip():
        raise value.refused(allowed)
    if os.path.isabs(path):
        raise value.refused(allowed, ", which is absolute")
    if ".." in re.split(r"[/\\]", path):
        raise value.refused(allowed, ", which leaves the folder by '..'")
    found = Path(os.path.abspath(folder / path))
    real, real_folder = os.path.realpath(found), os.path.realpath(folder)
    if os.path.commonpath((real, real_folder)) != real_folder:
        raise value.refused(allowed, f", a link that leaves the folder to {shown(real, 1000)}")
    return found


def _meant(text: str, folder: Path) -> str:
    path = PurePosixPath(text)
    names = names_in(folder / path.parent, ".py")
    found = near(path.name, names)
    return f" (did you mean {str(path.parent / found)!r}?)" if found else holding("", names, "the folder")


def _defined_names(path: Path) -> set[str] | None:
    """Every name that a Python file may bind; None where that cannot be told without running it."""
    import ast  # only scenarios with a check need it

    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(_CHECK_MAX_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(part.name)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        elif isinstance(part, ast.alias):
            names.add((part.asname or part.name).partition(".")[0])
    return None if "*" in names else names
