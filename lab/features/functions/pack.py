"""Pack a call for ranks that lack the caller's files and pytest, and the modules that they need."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import io
import json
import os
import pickle
import pkgutil
import posixpath
import re
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import lab
from lab.errors import UsageError
from lab.features.functions.on_node.messages import LIMIT_BYTES
from lab.frozen import Frozen
from lab.words import format_limit

_OF_PYTEST = ("_pytest", "exceptiongroup", "iniconfig", "packaging", "pluggy", "py", "pygments", "pytest", "tomli")
LENT_PACKAGES = frozenset({"cloudpickle", *_OF_PYTEST})
"""Installed modules that can be sent, all in pure Python; a cluster has to list others as requirements."""
_PARTS = {"pygments/lexers": ("__init__.py", "_mapping.py", "diff.py", "python.py")}
"""Parts of packages to send; the other files are megabytes that no rank needs."""
_INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders for installed packages, of this or another interpreter."""
_LIMIT_BYTES = 32 << 20
_SKIPPED = {"__pycache__", "node_modules"}
_TEXT = (".py", ".pyi", ".txt", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".csv")


def pack_module(name: str, packed: Packed) -> bytes:
    """Encode a module and its submodules, if they can be sent to ranks; import nothing for that.

    The result is a `lab.features.functions.on_node.calls.ShippedModule` as JSON.

    Args:
        name: Without a dot; may come from an attacker.
        packed: Says where the caller's code is; notes where files are.
    """
    files, own, size = dict[str, str](), dict[str, str](), 0
    location = _find(name) if name.isidentifier() else None
    if location is not None and (is_own(str(location)) or name in LENT_PACKAGES):
        for path in _files(location):
            below = path.relative_to(location.parent).as_posix()
            if path.name not in _PARTS.get(posixpath.dirname(below), (path.name,)):
                continue
            files[below] = path.read_text(encoding="utf-8", errors="replace")
            if is_own(str(path)):
                own[below] = source_name(str(path), packed.folder) if path.is_relative_to(packed.folder) else below
            packed.shown[own.get(below, f"<lent>/{below}")] = str(path)
            size += len(files[below])
            if size > _LIMIT_BYTES:
                files = {}
                break
    return json.dumps({"name": name, "files": files, "own": own}, separators=(",", ":")).encode("utf-8", "replace")


_IMPORTS = re.compile(
    r"""(?m)(?:^|[;:])[ \t]*(?:from|import)[ \t]+(\w[^#;\n]*?)(?:[ \t]import\b|[#;\n]|$)|import_module\(["'](\w+)"""
)


def find_modules(script: Path) -> dict[str, Path]:
    """Return the files of the caller's own modules that a script imports, by their paths next to the script.

    Modules in the script's folder are not included, but what they import is. Nothing is imported to find them.
    """
    handled, modules, unread = set(sys.stdlib_module_names), dict[str, Path](), [script]
    while unread:
        text = unread.pop().read_text(encoding="utf-8", errors="replace")
        named = ",".join(map("".join, _IMPORTS.findall(text))).split(",")
        for name in {re.split(r"[.\s]", one.strip())[0] for one in named} - handled:
            handled.add(name)
            candidates = (script.parent / f"{name}.py", script.parent / name)
            shipped = [path for path in candidates if path.is_file() or (path / "__init__.py").is_file()]
            for location in shipped[:1] or filter(None, [_find(name)]):
                files = _files(location) if is_own(str(location)) else []
                unread += [path for path in files if path.suffix == ".py"]
                top = f"{name}.py" if location.is_file() else name
                inner = {} if shipped else {path.relative_to(location): path for path in files}
                modules |= {os.path.normpath(os.path.join(top, path)): source for path, source in inner.items()}
    return modules


def source_name(path: str, folder: str) -> str:
    """Return the name of a source file for ranks: its path below a folder, or below the current one."""
    if path.startswith("<") or not os.path.isabs(path):
        return path
    for base in (folder, os.getcwd(), os.path.dirname(os.path.dirname(path))):
        if path.startswith(os.path.join(base, "")):
            return os.path.relpath(path, base)
    return os.path.basename(path)


@cache
def is_own(path: str) -> bool:
    """Return whether a file is the caller's own code: not Python's, and not in an installed package."""
    real = os.path.join(os.path.realpath(path), "")
    if not _INSTALLED.isdisjoint([*path.split(os.sep), *real.split(os.sep)]):
        return False
    return not any(real.startswith(os.path.join(folder, "")) for folder in _installed())


@cache
def _installed() -> tuple[str, ...]:
    named = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = {*named, *site.getsitepackages(), site.getusersitepackages(), *lab.__path__}
    return tuple(sorted({os.path.realpath(folder) for folder in folders}))


def _find(name: str) -> Path | None:
    """Return the file or folder of a module."""
    loaded = sys.modules.get(name)
    if (spec := getattr(loaded, "__spec__", None)) is None:
        with suppress(ImportError, ValueError, AttributeError):
            spec = PathFinder.find_spec(name) or importlib.util.find_spec(name)  # installed as editable
    file = getattr(loaded, "__file__", None) if spec is None else spec.origin
    if spec is not None and (locations := list(spec.submodule_search_locations or ())):
        return Path(locations[0])
    return Path(file) if isinstance(file, str) and file.endswith(".py") else None


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        paths += [Path(folder, name) for name in sorted(names) if name.endswith(_TEXT)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


ORIGINAL = "__lab_function__"
"""Attribute of a wrapper here: the function that ranks call."""
IN_NODE = "__lab_in_node__"
"""Attribute of a class or function that names its replacement on ranks: `module:name`."""
_REWRITER = "_pytest.assertion.rewrite"
_ASSERTIONS = "labnode.features.functions.on_node.call_assertions"
_LOOP = ("_asyncioRunner", "_asyncioTestContext", "_asyncioTestLoop", "_asyncioCallsQueue", "_asyncioCallsTask")
_OF_RUNNER: dict[str, Any] = {"_outcome": None, "_subtest": None, "_cleanups": [], **dict.fromkeys(_LOOP)}
"""Attributes of a unittest case that belong to its runner, with their values on ranks."""
_FUNCTIONS = "a function of a module or a nested one, whose arguments and variables can be pickled"
_pickling = threading.RLock()
"""cloudpickle registers modules to pickle by value for the whole process."""


class Packed:
    """Facts from packing calls for the same ranks."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.shown: dict[str, str] = {}
        """Paths of source files here, by their names on ranks."""
        self.classes: dict[tuple[str, str], type | None] = {}
        """Classes that are sent by value, by module and name, to read the answers; None: two have the same name."""

    def name(self, path: str) -> str:
        """Return the name of a source file for ranks."""
        if not is_own(path):
            return path
        name = source_name(path, self.folder)
        self.shown[name] = path
        return name


class CallOptions(Frozen):
    """Options of a call."""

    timeout_s: float = 60.0
    """Seconds after which the call counts as hung."""
    fresh: bool = False
    """Start new ranks for it."""
    backend: str = "gloo"
    """Backend of the process group of all ranks; empty: no process group."""
    filled: tuple[str, ...] = ()
    """Parameters that each rank fills in unless the caller passes them: `rank`, `world_size`, or `group`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of pytest, see `call_assertions`."""
    variables: bool = False
    """Whether failures include local variables."""
    write: Callable[[BaseException], str] | None = None
    """Formats an exception with its traceback; None: as Python does."""


def pack_call(
    packed: Packed, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: CallOptions
) -> bytes:
    """Pack a call for `labnode.features.functions.on_node.calls`.

    Args:
        packed: Names of source files; collects facts.
        function: Function to call.
        arguments: Positional arguments.
        named: Keyword arguments.
        how: Options of the call.

    Raises:
        UsageError: Something in it cannot be sent; the message says what.
    """
    module = _module_of(function)
    try:
        body = _dumps(packed, [module, *map(_module_of, arguments)], (function, tuple(arguments), dict(named)))
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        culprit = _name_unsendable_argument(packed, function, arguments, named)
        message = f"cannot send {name} to the ranks{culprit}: {type(error).__name__}: {error}"
        raise UsageError(message[:600], f"allowed: {_FUNCTIONS}") from error
    path = _file_of(module) or str(getattr(getattr(function, "__code__", None), "co_filename", ""))
    sources = {}
    if is_own(path) and os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            sources[packed.name(path)] = file.read()
    head = pickle.dumps((how.filled, sources, dict(how.settings), how.variables), protocol=4)
    if (size := len(head) + len(body)) > LIMIT_BYTES:
        hint = "create large tensors on the ranks, or put files into the cluster's `data`"
        raise UsageError(f"cannot send a call of {size:,} bytes; allowed: at most {format_limit(LIMIT_BYTES)}", hint)
    return head + body


def _name_unsendable_argument(
    packed: Packed, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> str:
    """Name the first argument that cannot be sent, as part of a sentence; empty if all can."""
    values = {**{f"number {number}": value for number, value in enumerate(arguments, 1)}, **named}
    with suppress(TypeError, ValueError):  # not every function has a signature
        values = inspect.signature(function).bind(*arguments, **named).arguments
    for name, value in values.items():
        try:
            _dumps(packed, [_module_of(function), _module_of(value)], value)
        except Exception:  # noqa: BLE001 - the same as before, as a rule
            return f" with its argument {name}, a {type(value).__name__}"
    return ""


def _module_of(item: object) -> ModuleType | None:
    """Return the module of a function, of a class, or of an object's class."""
    kind = item if isinstance(item, type | FunctionType) else type(item)
    return sys.modules.get(getattr(kind, "__module__", None) or "")


def _file_of(module: ModuleType | None) -> str:
    return getattr(module, "__file__", None) or ""


def _without_its_runner(case: Any) -> Any:
    """Return how to pickle a unittest case without the attributes of its runner."""
    made, *others = case.__reduce_ex__(4)
    if len(others) > 1 and isinstance(others[1], dict):
        others[1] = {**others[1], **{name: empty for name, empty in _OF_RUNNER.items() if name in others[1]}}
        others[1].pop(others[1].get("_testMethodName"), None)
    return made, *others


def _dumps(packed: Packed, modules: Sequence[ModuleType | None], value: object) -> bytes:
    """Pickle a value; send by value what these modules of the caller contain, and functions outside of modules."""
    import cloudpickle

    reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]
    test_case = getattr(sys.modules.get("unittest.case"), "TestCase", None)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            if (kind := type(item)) is CodeType:
                make, parts, *rest = reduce_code(item)
                # the file name is the first string; cloudpickle 3.1.3 omits it
                at = next(number for number, part in enumerate(parts) if isinstance(part, str))
                return make, (*parts[:at], packed.name(item.co_filename), *parts[at + 1 :]), *rest
            if isinstance(item, type | FunctionType) and IN_NODE in vars(item):
                return pkgutil.resolve_name, (vars(item)[IN_NODE],)
            if kind is FunctionType and ORIGINAL in item.__dict__:
                return copy.copy, (item.__dict__[ORIGINAL],)
            if kind is ModuleType and item.__name__ == _REWRITER:
                return importlib.import_module, (_ASSERTIONS,)
            if test_case is not None and isinstance(item, test_case):
                return _without_its_runner(item)
            if kind.__module__.startswith("_pytest.mark"):  # ranks do not need marks
                return list, ()
            reduced = super().reducer_override(item)
            if isinstance(item, type) and reduced is not NotImplemented:
                for name in {item.__name__, item.__qualname__}:  # cloudpickle uses one or the other
                    key = item.__module__, name
                    packed.classes[key] = item if packed.classes.get(key, item) is item else None
            return reduced

    by_value = {module for module in modules if module is not None and _file_of(module) and is_own(_file_of(module))}
    by_value -= {sys.modules["__main__"]}
    buffer = io.BytesIO()
    with _pickling:
        for module in by_value:
            cloudpickle.register_pickle_by_value(module)
        try:
            Pickler(buffer).dump(value)
        finally:
            for module in by_value:
                cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue()
