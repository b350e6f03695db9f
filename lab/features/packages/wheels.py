"""Fetch, check, and install the wheels that a Python lacks."""

from __future__ import annotations

import configparser
import json
import os
import re
import select
import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.errors import ClusterError, ClusterUnfit, LabError
from lab.features.packages import install_program, pip_program, probe
from lab.frozen import Frozen
from lab.spec.reading import clip_repr
from lab.words import clip_end, format_bytes, format_duration, join_words

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

PROBE_DEADLINE_S = 60
"""Seconds that a Python gets to describe itself."""


@cache
def program_text(program: ModuleType = install_program) -> str:
    """Return the text of a program for another Python; by default the one that installs wheels."""
    return Path(str(program.__file__)).read_text()


def probe_text() -> str:
    """Return the program with which a Python describes itself."""
    return program_text(probe)


class Package(NamedTuple):
    """An installed distribution."""

    version: str
    extras: Sequence[str] = ()
    requires: Sequence[str] = ()
    """Requirements of its extras."""


class Target(Frozen):
    """A Python that packages are for."""

    what: str
    """Where it belongs, such as `image lab-node:0.1.0`."""
    executable: str
    python: str
    """`3.11`"""
    abi: str
    """`cp311`"""
    platforms: Sequence[str]
    """Platform tags of wheels that fit, the best first."""
    markers: Mapping[str, str]
    folders: Sequence[str]
    """The folders of its packages."""
    modules: Collection[str]
    """Importable modules as paths without suffixes: `torch`, or `google/protobuf` in a namespace."""
    programs: Collection[str]
    """Names of the programs in its folder."""
    system_programs: Collection[str]
    """Names of all programs on `PATH`."""
    has: Mapping[str, Package]

    @classmethod
    def parse(cls, what: str, text: str) -> Target:
        """Parse a Python's description of itself.

        Raises:
            ClusterError: It printed anything else.
        """
        try:
            data: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
            for name in ("modules", "programs", "system_programs"):
                data[name] = frozenset(data[name])
            data["has"] = {name: Package(**about) for name, about in data["has"].items()}
            return cls(what=what, **data)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            printed = clip_end(text.strip(), 200)
            raise ClusterError(f"cannot identify the Python of {what}: it printed {printed}") from error

    @property
    def name(self) -> str:
        """`Python 3.11 on x86_64`."""
        return f"Python {self.python} on {self.markers['platform_machine']}"

    @property
    def other_image(self) -> str:
        """The end of a hint for packages that conflict with installed ones."""
        elsewhere = "" if self.what.startswith("image ") else ", with --engine docker"
        return f"or use an image that has it: `image:` in the scenario, or --image{elsewhere}"

    def meets(self, requirement: str) -> bool:
        """Return whether installed packages meet a requirement completely."""
        from packaging.requirements import Requirement

        wanted = Requirement(requirement)
        if not self.applies(wanted):
            return True
        there = self.installed(wanted)
        return (
            there is not None
            and is_fulfilled(wanted, there)
            and all(
                self.meets(needed.partition(";")[0])
                for needed in there.requires
                if any(self.applies(Requirement(needed), extra) for extra in wanted.extras)
            )
        )

    def applies(self, wanted: Requirement, extra: str = "") -> bool:
        """Return whether a requirement's marker applies to this Python."""
        return wanted.marker is None or wanted.marker.evaluate({**self.markers, "extra": extra})

    def installed(self, wanted: Requirement) -> Package | None:
        """Return the installed package that a requirement is about."""
        from packaging.utils import canonicalize_name

        return self.has.get(canonicalize_name(wanted.name))


def is_fulfilled(wanted: Requirement, there: Package) -> bool:
    """Return whether a requirement allows this version; a package from an address never counts as installed."""
    return wanted.url is None and wanted.specifier.contains(there.version, prereleases=True)


SILENT_S = 900.0
"""Seconds without output of pip after which it is killed."""
_ENVIRONMENT = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
}
_LONGEST = 100
_STEP = re.compile(r"(?P<word>Collecting|Downloading) (?:\S*/)?(?P<name>[^\s#/]*)\S*(?: (?P<size>\([\d.]+ \w+\)))?")
"""pip's progress, without addresses, which may hold passwords."""


def run_pip(target: Target, arguments: Sequence[str], folder: Path, announce: Callable[[str], None]) -> None:
    """Run pip for the packages of a Python, in a folder; its index and options are those of the user.

    Raises:
        LabError: pip is missing, or fails, or prints nothing for too long.
    """
    program, markers = program_text(pip_program), json.dumps(dict(target.markers))
    code, lines = _run([sys.executable, "-c", program, markers, target.executable, *arguments], folder, announce)
    if code:
        raise pip_failed(code, lines, target)


def install_wheels(target: Target, folder: Path, wheels: Sequence[Path], work: Path) -> None:
    """Create a virtual environment with wheels over the lab's own Python.

    Raises:
        ClusterError: This fails.
    """
    request = install_request(target, str(folder), list(map(str, wheels)), str(library_folder().parent))
    code, lines = _run([sys.executable, "-I", "-c", program_text(), request], work)
    if code:
        raise ClusterError(f"installing the packages failed: {clip_repr(lines[-1] if lines else code, 300)}")


def ask_python(what: str, folder: Path) -> Target:
    """Return the description of the lab's own Python.

    Raises:
        ClusterError: It prints none.
    """
    return Target.parse(what, "\n".join(_run([sys.executable, "-c", probe_text()], folder)[1]))


def _run(
    command: Sequence[str], folder: Path, announce: Callable[[str], None] = lambda _: None
) -> tuple[int, list[str]]:
    """Run a command that prints progress; return its exit code and its output."""
    environment, lines, rest = {**os.environ, **_ENVIRONMENT}, list[str](), b""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, env=environment, bufsize=0, **pipes) as process:
        assert process.stdout is not None
        try:
            while select.select([process.stdout], [], [], SILENT_S)[0]:
                piece = process.stdout.read(1 << 16)
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole if piece else filter(None, [rest]):
                    text = line.decode("utf-8", "replace").rstrip()
                    lines.append("".join(one if one.isprintable() else repr(one)[1:-1] for one in text))
                    if step := _STEP.match(lines[-1]):
                        brief = " ".join(filter(None, (step["word"].lower(), step["name"], step["size"])))
                        announce(f"packages: {clip_end(brief, _LONGEST)}")
                    elif lines[-1].startswith("WARNING: Retrying "):
                        announce("packages: the index does not answer, pip tries again")
                if not piece:
                    return process.wait(SILENT_S), lines
        finally:
            process.kill()
    hint = "try `pip download` of the same packages yourself"
    raise ClusterError(f"no output from pip for {format_duration(SILENT_S)}", hint)


_INDEX = (
    "pip's own configuration names the index: PIP_INDEX_URL, pip.conf; "
    "without one, PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER"
)
_WANTED = re.compile(r"^[ \t]+(?:The user requested )?(\S.*)$", re.MULTILINE)
_CONSTRAINT = re.compile(r"\(constraint\) ([\w.-]+)===(\S+)")
_NOTHING_FITS = re.compile(
    r"(?:No matching distribution found for|Could not find a version that satisfies the requirement) ([^\s(]+)"
)
_INVALID = re.compile(r"^ERROR: (\S+) has an invalid wheel, (?:\S+ has an invalid wheel, )?(.*)$", re.MULTILINE)
_VERSIONS = re.compile(r"\(from versions: (?!none)([^)]+)\)")
_UNREACHABLE = re.compile(
    r"connection broken|NewConnectionError|NameResolutionError|Temporary failure in name|Name or service not known"
    r"|ConnectTimeout|ReadTimeout|SSLError|CERTIFICATE_VERIFY_FAILED|Could not fetch URL|Network is unreachable",
    re.IGNORECASE,
)
_ERRNO = re.compile(r"\[Errno -?\d+\] ([^'\")\]]+)")
_PASSWORD = re.compile(r"(?<=//)[^/@\s]+@")


def pip_failed(code: int, lines: Sequence[str], target: Target) -> LabError:
    """Return the error for a failed call of pip.

    Args:
        code: Its exit code.
        lines: Its output.
        target: The Python that the packages are for.
    """
    text = "\n".join(lines)
    if code == pip_program.NO_PIP:
        hint = f"{sys.executable} -m ensurepip, or install pip into the lab's environment in another way"
        return ClusterUnfit(f"the lab fetches packages with pip, which {sys.executable} does not have", hint)
    if pip_program.REFUSED in text:
        names = re.findall(r"^Collecting (\S+)", text, re.MULTILINE) or ["a package"]
        hint = "name a version that has a wheel, or build one with `pip wheel` and name its path"
        return ClusterUnfit(f"cannot install {_one_line(names[-1])}: {pip_program.REFUSED}", hint)
    if "conflicting dependencies" in text:
        return _conflict(text, target)
    if invalid := _INVALID.search(text):
        hint = "remove this package, or use another version of it"
        return ClusterUnfit(f"a wheel of {invalid[1]} is damaged: {_one_line(invalid[2])}", hint)
    nothing = _NOTHING_FITS.search(text)
    for line in filter(_UNREACHABLE.search, lines):
        why = [*_ERRNO.findall(line), *_UNREACHABLE.findall(line)][0].strip()
        return ClusterError(f"pip cannot reach a package index{f' for {nothing[1]}' if nothing else ''}: {why}", _INDEX)
    if nothing:
        known = "".join(f"; there are {clip_end(one.strip(), 100)}" for one in _VERSIONS.findall(text)[:1])
        message = f"no wheel of {nothing[1]} fits {target.what} ({target.name}){known}"
        return ClusterUnfit(message, f"check its name and version; the lab installs only wheels; {_INDEX}")
    if "no space left on device" in text.lower():
        return ClusterError("cannot fetch packages: no space left on device", "free space, or set XDG_CACHE_HOME")
    errors = [line.partition("ERROR: ")[2] for line in lines if line.startswith("ERROR: ")]
    if not errors or errors[0] == "Exception:":  # the last line is that of a traceback
        errors = [line for line in reversed(lines) if line.strip()] or [f"exit code {code}"]
    return ClusterError(f"pip cannot fetch the packages: {_one_line(errors[0])}", _INDEX)


def _conflict(text: str, target: Target) -> ClusterUnfit:
    """Return the error for packages whose requirements conflict."""
    caused = text.partition("The conflict is caused by")[2].partition("\n\n")[0]
    wants = [what for what in _WANTED.findall(caused) if not _CONSTRAINT.match(what)]
    there = [" ".join(fixed) for fixed in _CONSTRAINT.findall(caused)]
    wanted = join_words(what.replace(" depends on ", " needs ") for what in wants[:6])
    has = f", and {target.what} keeps its {join_words(there)}" if there else ""
    hint = "change the versions" + (f", {target.other_image}" if there else "")
    message = f"the requirements contradict each other: {wanted or 'the requested packages'}{has}"
    return ClusterUnfit(message, hint)


def _one_line(text: str) -> str:
    return clip_end(_PASSWORD.sub("", " ".join(text.split())), 300)


_BEFORE_ALL_OTHERS = "999999999"
"""A build number: among equal wheels of the same version, pip chooses the highest one."""


def fetch_wheels(
    target: Target, requirements: Sequence[str], folder: Path, announce: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Fetch the packages that a Python lacks, with their dependencies, into a folder that exists.

    Installed packages are kept: pip finds an empty wheel for each in a folder, and may choose no other version.

    Raises:
        LabError: A requirement conflicts with an installed package, or cannot be fetched.
    """
    _refuse_contradictions(target, requirements)
    there, wheels, fixed = folder / "there", folder / "wheels", folder / "there.txt"
    there.mkdir()
    wheels.mkdir()
    known = {name: package for name, package in target.has.items() if _version(package.version)}
    stand_ins = {_write_stand_in(there, target, name, package) for name, package in known.items()}
    fixed.write_text("".join(f"{name}==={package.version}\n" for name, package in known.items()))
    announce("packages: looking for missing packages")
    folders = ["--find-links", str(there), "--constraint", str(fixed), "--dest", str(wheels)]
    python = ["--implementation", "cp", "--python-version", target.python, "--abi", target.abi]
    fitting = ["--only-binary=:all:", *python, *(f"--platform={platform}" for platform in target.platforms)]
    run_pip(target, ["download", *folders, *fitting, "--", *requirements], folder, announce)
    return sorted(path for path in wheels.iterdir() if path.name not in stand_ins)


def _refuse_contradictions(target: Target, requirements: Sequence[str]) -> None:
    from packaging.requirements import Requirement

    for wanted in map(Requirement, requirements):
        there = target.installed(wanted)
        if there is not None and target.applies(wanted) and not is_fulfilled(wanted, there):
            why = f"you requested {wanted}, but {target.what} has {wanted.name} {there.version} and keeps it"
            raise ClusterUnfit(why, f"remove the version, {target.other_image}")


def _write_stand_in(folder: Path, target: Target, name: str, package: Package) -> str:
    """Write an empty wheel for an installed package, with the requirements of its extras; return its file name."""
    stem = f"{name.replace('-', '_')}-{package.version.replace('-', '_')}"
    tag = f"cp{target.python.replace('.', '')}-{target.abi}-{target.platforms[0]}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {package.version}"]
    lines += [f"Provides-Extra: {extra}" for extra in package.extras]
    lines += [f"Requires-Dist: {text}" for text in package.requires]
    file = f"{stem}-{_BEFORE_ALL_OTHERS}-{tag}.whl"
    with zipfile.ZipFile(folder / file, "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return file


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
"""Modules of the lab that workers import, and those that every interpreter imports by itself."""
_OWN_FILES = frozenset({"pyvenv.cfg", "lib64"})
_OWN_PROGRAMS = re.compile(r"python(\d+(\.\d+)?)?(-config)?")
_IMPORTED = (".py", ".pyc", ".so")
_UNREADABLE = (
    *(zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError),
    *(configparser.Error, AssertionError),  # of entry points
)


def check_wheels(target: Target, wheels: Sequence[Path], *, whole_path: bool) -> None:
    """Refuse wheels that must not be in an environment over a Python.

    Args:
        target: The Python that they are for.
        wheels: Their paths.
        whole_path: Whether names of all programs on the target's `PATH` are refused; otherwise only those of programs
            in the folder of its Python.

    Raises:
        ClusterUnfit: A wheel is damaged or too large, leads out of its folder, or has a file that already exists.
    """
    existing_programs = {*target.programs, *target.system_programs} if whole_path else target.programs
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                _check_wheel(target, wheel, archive, existing_programs)
        except _UNREADABLE as error:
            raise _refused(wheel.name, f"it cannot be read ({clip_repr(str(error), 200)})") from error


def _check_wheel(target: Target, path: Path, archive: zipfile.ZipFile, existing_programs: Collection[str]) -> None:
    from installer.utils import parse_entrypoints

    wheel, entries, packed_bytes = path.name, archive.infolist(), path.stat().st_size
    if len(entries) > MAX_FILES:
        raise _refused(wheel, f"it has {len(entries):,} files; allowed: {MAX_FILES:,}")
    if (size := sum(entry.file_size for entry in entries)) > MAX_BYTES:
        raise _refused(wheel, f"it has {format_bytes(size)}; allowed: {format_bytes(MAX_BYTES)}")
    if size > _PLAIN_BYTES and size > _MAX_RATIO * packed_bytes:
        unpacked = f"{format_bytes(packed_bytes)} to {format_bytes(size)}"
        raise _refused(wheel, f"it unpacks {unpacked}, more than {_MAX_RATIO} times as much")
    about = _name_of_metadata(wheel, entries)
    for entry in entries:
        _refuse_bad_name(wheel, entry.filename.removesuffix("/"))
        if (entry.external_attr >> 16) & _FORMAT == _LINK:
            raise _refused(wheel, f"{clip_repr(entry.filename, 200)} in it is a symbolic link")
        _refuse_overlap(target, wheel, entry.filename, *_destination(entry.filename, about, target), existing_programs)
    for entry in entries:
        if entry.filename == f"{about}.dist-info/entry_points.txt":
            if entry.file_size > _MAX_ENTRY_POINTS_BYTES:
                raise ValueError("entry_points.txt is too large")
            for program, *_ in parse_entrypoints(archive.read(entry).decode("utf-8")):
                _refuse_bad_name(wheel, program, deepest=1)
                _refuse_overlap(target, wheel, f"bin/{program}", "scripts", PurePosixPath(program), existing_programs)


def _name_of_metadata(wheel: str, entries: Sequence[zipfile.ZipInfo]) -> str:
    """Return the name of a wheel's folders `.dist-info` and `.data`, such as `tqdm-4.67.1`."""
    from packaging.utils import canonicalize_name, parse_wheel_filename

    name, version, _, _ = parse_wheel_filename(wheel)
    folders = {entry.filename.partition("/")[0] for entry in entries}
    metadata = sorted(one for one in folders if one.endswith((".dist-info", ".egg-info")))
    if len(metadata) == 1 and metadata[0].endswith(".dist-info"):
        stem = metadata[0].removesuffix(".dist-info")
        its_name, _, its_version = stem.rpartition("-")
        if canonicalize_name(its_name) == name and _version(its_version) == version:
            return stem
    what = clip_repr(", ".join(metadata), 200) if metadata else "none"
    raise _refused(wheel, f"it needs one folder {name}-{version}.dist-info, but has {what}")


def _refuse_bad_name(wheel: str, name: str, deepest: int = _MAX_PATH) -> None:
    parts = name.split("/")
    bad = "\\" in name or not name.isprintable() or len(name) > _MAX_PATH or len(parts) > deepest
    if bad or any(part in ("", ".", "..") or len(part) > _MAX_NAME for part in parts):
        raise _refused(wheel, f"{clip_repr(name, 200)} in it is not a path below the folder of packages")


def _destination(name: str, about: str, target: Target) -> tuple[str, PurePosixPath]:
    """Return where a file goes: a scheme of wheels, and the path below the folder of that scheme."""
    root, *inner = PurePosixPath(name).parts
    if root != f"{about}.data":
        return "library", PurePosixPath(name)
    scheme, path = inner[0] if inner else "data", inner[1:]
    if scheme == "data":
        for below, other in (["bin"], "scripts"), (["lib", f"python{target.python}", "site-packages"], "library"):
            if path[: len(below)] == below:
                return other, PurePosixPath(*path[len(below) :])
    return "library" if scheme in ("purelib", "platlib") else scheme, PurePosixPath(*path)


def _refuse_overlap(
    target: Target, wheel: str, name: str, scheme: str, path: PurePosixPath, existing_programs: Collection[str]
) -> None:
    if not path.parts:
        return
    own = overlap = False
    if scheme == "scripts":
        own, overlap = bool(_OWN_PROGRAMS.fullmatch(path.name)), str(path) in existing_programs
    elif scheme == "data":
        own = path.parts[0] in _OWN_FILES
    elif scheme == "library":
        modules = ["/".join(path.parts[:depth]) for depth in range(1, len(path.parts))]
        if path.suffix in _IMPORTED:
            modules.append("/".join((*path.parts[:-1], path.name.partition(".")[0])))
        own = path.name == install_program.BELOW or not _OWN_MODULES.isdisjoint(modules)
        overlap = any(one in target.modules for one in modules)
    if overlap:
        why = f"{wheel} has {clip_repr(name, 200)}, but {target.what} has that file already and keeps it"
        raise ClusterUnfit(why, f"remove this package, {target.other_image}")
    if own:
        raise _refused(wheel, f"{clip_repr(name, 200)} in it would replace a file of the environment")


def _refused(wheel: str, why: str) -> ClusterUnfit:
    return ClusterUnfit(f"cannot install {wheel}: {why}", "remove this package, or use another version of it")


_LIBRARY = "installer"


@cache
def library_folder() -> Path:
    """Return the folder of the library that installs wheels.

    Raises:
        ClusterError: It is not installed.
    """
    if (spec := find_spec(_LIBRARY)) is None or spec.origin is None:
        raise ClusterError(f"packages need the library {_LIBRARY}, which is not installed", f"pip install {_LIBRARY}")
    return Path(spec.origin).parent


def install_request(target: Target, folder: str, wheels: Sequence[str], library: str) -> str:
    """Return the last argument of the program.

    Args:
        target: The Python that the packages are for.
        folder: The folder of the new environment.
        wheels: Paths of wheels, where the program runs.
        library: The folder of the library, where the program runs.
    """
    return json.dumps({"folder": folder, "below": list(target.folders), "wheels": wheels, "installer": library})
