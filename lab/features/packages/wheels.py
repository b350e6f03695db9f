"""The wheels that a Python lacks: fetched on this machine, looked through, and how they are installed.

What the Python has is left as it is.
"""

from __future__ import annotations

import configparser
import json
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lab.errors import ClusterError, ClusterUnfit
from lab.features.packages import install_program
from lab.features.packages.install_program import BELOW
from lab.features.packages.pip import Package, Target, fits, run_pip
from lab.spec.reading import shown
from lab.words import format_bytes

if TYPE_CHECKING:
    from packaging.version import Version

_BEFORE_ALL_OTHERS = "999999999"
"""A build number: of wheels that fit as well and have the same version, pip takes the one with the highest."""


def fetch_wheels(
    target: Target, requirements: Sequence[str], folder: Path, tell: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Fetch what a Python lacks of what is required, with all that it needs, into a folder that is there.

    What the Python has counts as it is: pip finds a wheel of each in a folder, which holds nothing but its name, and
    may choose no other version.

    Raises:
        LabError: a requirement contradicts what is there, or cannot be fetched.
    """
    _refuse_contradictions(target, requirements)
    there, wheels, fixed = folder / "there", folder / "wheels", folder / "there.txt"
    there.mkdir()
    wheels.mkdir()
    known = {name: package for name, package in target.has.items() if _version(package.version)}
    for name, package in known.items():
        _write_stand_in(there, target, name, package)
    fixed.write_text("".join(f"{name}==={package.version}\n" for name, package in known.items()))
    tell("packages: looking for what is missing")
    options = ["--find-links", str(there), "--constraint", str(fixed), "--dest", str(wheels)]
    run_pip(target, ["download", *options, *fitting(target), "--", *requirements], folder, tell)
    stand_ins = {path.name for path in there.iterdir()}
    return sorted(path for path in wheels.iterdir() if path.name not in stand_ins)


def fitting(target: Target) -> list[str]:
    """The options of pip by which only wheels for that Python are taken."""
    version = ["--implementation", "cp", "--python-version", target.python, "--abi", target.abi]
    return ["--only-binary=:all:", *version, *(f"--platform={platform}" for platform in target.platforms)]


def _refuse_contradictions(target: Target, requirements: Sequence[str]) -> None:
    from packaging.requirements import Requirement

    for wanted in map(Requirement, requirements):
        there = target.has.get(wanted.name)
        meant = wanted.marker is None or wanted.marker.evaluate(dict(target.markers))
        if there is not None and meant and (wanted.url is not None or not fits(wanted, there.version)):
            raise ClusterUnfit(
                f"{wanted} was asked for, and {target.what} has {wanted.name} {there.version}, which stays",
                f"leave its version out, {target.other_image}",
            )


def _write_stand_in(folder: Path, target: Target, name: str, package: Package) -> None:
    """A wheel that says that a package is there, and what its extras need besides."""
    as_file = name.replace("-", "_")
    version = re.sub("-", "_", package.version)
    tag = f"cp{target.python.replace('.', '')}-{target.abi}-{target.platforms[0]}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {package.version}"]
    lines += [f"Provides-Extra: {extra}" for extra in package.extras]
    lines += [f"Requires-Dist: {text}" for text in package.requires]
    about = f"{as_file}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{as_file}-{version}-{_BEFORE_ALL_OTHERS}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{about}/RECORD", "")


def _version(text: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return None


MAX_FILES = 200_000
"""Of one wheel; the largest ones on PyPI have about 30,000."""
MAX_BYTES = 16 << 30
"""Of one wheel, unpacked; those of CUDA have 1 to 3 GB."""
_PLAIN_BYTES, _MAX_RATIO = 256 << 20, 30
"""A wheel of more than 256 MiB must not be packed more tightly than this; code is packed to about a third."""
_MAX_PATH, _MAX_NAME = 1024, 240
"""Characters of a path, and of a name in it."""
_MAX_ENTRY_POINTS_BYTES = 1 << 20
_LINK = 0o120000
_FORMAT = 0o170000
_OWN_MODULES = frozenset({"lab", "labnode", "sitecustomize", "usercustomize"})
"""What workers import of the lab, and what every interpreter imports on its own."""
_OWN_FILES = frozenset({"pyvenv.cfg", "lib64"})
_OWN_PROGRAMS = re.compile(r"python(\d+(\.\d+)?)?(-config)?")
_IMPORTED = (".py", ".pyc", ".so")


def check_wheels(target: Target, wheels: Sequence[Path], *, whole_path: bool) -> None:
    """Refuse wheels that do not belong into an environment over a Python.

    Args:
        target: the Python that they are for.
        wheels: their paths.
        whole_path: whether a program may have no name that any program on the `PATH` of the target has; otherwise only
            the programs beside its Python count.

    Raises:
        ClusterUnfit: a wheel is damaged or too large, leads out of its folder, or holds a file that is there already.
    """
    taken = {*target.programs, *target.system_programs} if whole_path else target.programs
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                _check_wheel(target, wheel, archive, taken)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError, configparser.Error) as error:
            raise _refused(wheel.name, f"it cannot be read ({shown(str(error), 200)})") from error


def _check_wheel(target: Target, path: Path, archive: zipfile.ZipFile, taken: Collection[str]) -> None:
    wheel, entries = path.name, archive.infolist()
    if len(entries) > MAX_FILES:
        raise _refused(wheel, f"it holds {len(entries):,} files, and {MAX_FILES:,} are allowed")
    size = sum(entry.file_size for entry in entries)
    if size > MAX_BYTES:
        raise _refused(wheel, f"it holds {format_bytes(size)}, and {format_bytes(MAX_BYTES)} are allowed")
    if size > _PLAIN_BYTES and size > _MAX_RATIO * path.stat().st_size:
        packed = format_bytes(path.stat().st_size)
        raise _refused(wheel, f"it unpacks {packed} to {format_bytes(size)}, more than {_MAX_RATIO} times as much")
    about = _name_of_metadata(wheel, entries)
    for entry in entries:
        _refuse_bad_name(wheel, entry.filename.removesuffix("/"), folders=True)
        if (entry.external_attr >> 16) & _FORMAT == _LINK:
            raise _refused(wheel, f"{shown(entry.filename, 200)} in it is a symbolic link")
        scheme, inner = _destination(entry.filename, about, target)
        _refuse_overlap(target, wheel, entry.filename, scheme, inner, taken)
    for program in _entry_points(archive, about):
        _refuse_bad_name(wheel, program)
        _refuse_overlap(target, wheel, f"bin/{program}", "scripts", PurePosixPath(program), taken)


def _name_of_metadata(wheel: str, entries: Sequence[zipfile.ZipInfo]) -> str:
    """`tqdm-4.67.1`, of which the wheel has the folders `.dist-info` and `.data`."""
    from packaging.utils import canonicalize_name, parse_wheel_filename

    name, version, _, _ = parse_wheel_filename(wheel)
    folders = {entry.filename.partition("/")[0] for entry in entries}
    metadata = sorted(one for one in folders if one.endswith((".dist-info", ".egg-info")))
    stem, _, suffix = metadata[0].rpartition(".") if metadata else ("", "", "")
    its_name, _, its_version = stem.rpartition("-")
    is_its = suffix == "dist-info" and canonicalize_name(its_name) == name and _version(its_version) == version
    if len(metadata) != 1 or not is_its:
        what = shown(", ".join(metadata), 200) if metadata else "none"
        raise _refused(wheel, f"it has to hold one folder {name}-{version}.dist-info, and holds {what}")
    return stem


def _refuse_bad_name(wheel: str, name: str, *, folders: bool = False) -> None:
    parts = name.split("/") if folders else [name]
    acts = "\\" in name or not name.isprintable() or len(name) > _MAX_PATH
    if acts or any(part in ("", ".", "..") or "/" in part or len(part) > _MAX_NAME for part in parts):
        raise _refused(wheel, f"{shown(name, 200)} in it is no path below the folder of packages")


def _destination(name: str, about: str, target: Target) -> tuple[str, PurePosixPath]:
    """Where a file goes: a scheme of wheels, and the path below the folder of that scheme."""
    path = PurePosixPath(name)
    if path.parts[0] != f"{about}.data":
        return "library", path
    scheme, path = (path.parts[1] if len(path.parts) > 1 else "data"), PurePosixPath(*path.parts[2:])
    if scheme == "data" and path.parts[:1] == ("bin",):
        return "scripts", PurePosixPath(*path.parts[1:])
    library = ("lib", f"python{target.python}", "site-packages")
    if scheme == "data" and path.parts[:3] == library:
        return "library", PurePosixPath(*path.parts[3:])
    return {"purelib": "library", "platlib": "library"}.get(scheme, scheme), path


def _refuse_overlap(
    target: Target, wheel: str, name: str, scheme: str, path: PurePosixPath, taken: Collection[str]
) -> None:
    if not path.parts:
        return
    own = overlap = False
    if scheme == "scripts":
        own = _OWN_PROGRAMS.fullmatch(path.name) is not None
        overlap = str(path) in taken
    elif scheme == "data":
        own = path.parts[0] in _OWN_FILES
    elif scheme == "library":
        own = path.name == BELOW or any(one in _OWN_MODULES for one in _modules(path))
        overlap = any(one in target.modules for one in _modules(path))
    if overlap:
        raise ClusterUnfit(
            f"{wheel} holds {shown(name, 200)}, which {target.what} has already, and keeps",
            f"leave this package out, {target.other_image}",
        )
    if own:
        raise _refused(wheel, f"{shown(name, 200)} in it would take the place of a file of the environment")


def _modules(path: PurePosixPath) -> Iterator[str]:
    """The packages that a file is in, from the outermost, and the module that it is itself."""
    for depth in range(1, len(path.parts)):
        yield "/".join(path.parts[:depth])
    if path.suffix in _IMPORTED:
        yield "/".join((*path.parts[:-1], path.name.partition(".")[0]))


def _entry_points(archive: zipfile.ZipFile, about: str) -> list[str]:
    """The programs that are made for entry points of a wheel."""
    try:
        entry = archive.getinfo(f"{about}.dist-info/entry_points.txt")
    except KeyError:
        return []
    if entry.file_size > _MAX_ENTRY_POINTS_BYTES:
        raise ValueError("entry_points.txt is too large")
    parser = configparser.ConfigParser(delimiters="=", interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(archive.read(entry).decode("utf-8"))
    sections = [one for one in ("console_scripts", "gui_scripts") if parser.has_section(one)]
    return [name.strip() for one in sections for name in parser.options(one)]


def _refused(wheel: str, why: str) -> ClusterUnfit:
    return ClusterUnfit(f"{wheel} cannot be installed: {why}", "leave this package out, or take another version of it")


_LIBRARY = "installer"


@cache
def program_text() -> str:
    """The program, to be run by the Python that the packages are for."""
    return Path(install_program.__file__).read_text()


@cache
def library_folder() -> Path:
    """The folder of the library that installs wheels.

    Raises:
        ClusterError: it is not installed.
    """
    spec = find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise ClusterError(f"packages need the library {_LIBRARY}, which is not installed", f"pip install {_LIBRARY}")
    return Path(spec.origin).parent


def install_request(target: Target, folder: str, wheels: Sequence[str], library: str) -> str:
    """What the program is given as its last argument.

    Args:
        target: the Python that the packages are for.
        folder: where the environment goes.
        wheels: paths of wheels, where the program runs.
        library: the folder that holds the library, where the program runs.
    """
    said = {"folder": folder, "below": list(target.folders), "wheels": list(wheels), "installer": library}
    return json.dumps(said)
