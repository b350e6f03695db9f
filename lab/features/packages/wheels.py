"""The wheels that a Python lacks: what it has, what pip fetches, which wheels are refused, how they are installed."""

from __future__ import annotations

import configparser
import json
import os
import queue
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import dropwhile, islice, takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.errors import ClusterError, ClusterUnfit, LabError
from lab.features.packages import install_program, pip_program, probe
from lab.features.packages.install_program import BELOW
from lab.features.packages.pip_program import NO_PIP, REFUSED
from lab.features.packages.requirements import package_of
from lab.spec.reading import shown
from lab.words import clip, format_bytes, format_duration, listing

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

PROBE_DEADLINE_S = 60
"""How long a Python may take to say what it has."""


@cache
def probe_text() -> str:
    """The program that a Python runs to say what it is."""
    return Path(probe.__file__).read_text()


class Package(NamedTuple):
    """A distribution that is there."""

    version: str
    extras: Sequence[str] = ()
    requires: Sequence[str] = ()
    """What its extras need."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A Python that packages are for."""

    what: str
    """What it is the Python of, such as `image lab-node:0.1.0`."""
    executable: str
    python: str
    """`3.11`"""
    abi: str
    """`cp311`"""
    platforms: Sequence[str]
    """Those of wheels that fit, the best first."""
    markers: Mapping[str, str]
    folders: Sequence[str]
    """The folders of its packages."""
    modules: Collection[str]
    """What it can import, as paths without suffixes: `torch`, or `google/protobuf` in a namespace."""
    programs: Collection[str]
    """Names of the programs beside it."""
    system_programs: Collection[str]
    """Names of all programs on `PATH`."""
    has: Mapping[str, Package]

    @classmethod
    def told(cls, what: str, text: str) -> Target:
        """What a Python said of itself.

        Raises:
            ClusterError: it said something else.
        """
        try:
            data: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
            for name in ("modules", "programs", "system_programs"):
                data[name] = frozenset(data[name])
            data["has"] = {name: Package(**about) for name, about in data["has"].items()}
            return cls(what=what, **data)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ClusterError(f"the Python of {what} does not say what it has: {clip(text.strip(), 200)}") from error

    @property
    def name(self) -> str:
        """`Python 3.11 on x86_64`."""
        return f"Python {self.python} on {self.markers['platform_machine']}"

    @property
    def other_image(self) -> str:
        """What helps where what is there does not fit, as the end of a hint."""
        elsewhere = "" if self.what.startswith("image ") else ", with --engine docker"
        return f"or take an image that has it: `image:` in the scenario, or --image{elsewhere}"

    def meets(self, requirement: str) -> bool:
        """Whether what is there is all that a requirement asks for."""
        from packaging.requirements import Requirement

        return self._meets(Requirement(requirement))

    def _meets(self, wanted: Requirement) -> bool:
        from packaging.requirements import Requirement

        if wanted.marker is not None and not wanted.marker.evaluate(dict(self.markers)):
            return True
        there = self.has.get(package_of(str(wanted)))
        if there is None or wanted.url is not None or not fits(wanted, there.version):
            return False
        needed = [Requirement(text) for text in there.requires] if wanted.extras else []
        return all(
            self._meets(Requirement(str(one).partition(";")[0]))
            for one in needed
            for extra in wanted.extras
            if one.marker is not None and one.marker.evaluate({**self.markers, "extra": extra})
        )


def fits(wanted: Requirement, version: str) -> bool:
    """Whether a version is one that a requirement allows."""
    return wanted.specifier.contains(version, prereleases=True)


SILENT_S = 900.0
"""Seconds without any word from pip after which it is given up."""
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


def run_pip(target: Target, arguments: Sequence[str], folder: Path, tell: Callable[[str], None]) -> None:
    """Run pip for the packages of a Python, in a folder; its index and options are those of whoever calls.

    Raises:
        LabError: pip is not there, or fails, or says nothing for too long.
    """
    program, markers = Path(pip_program.__file__).read_text(), json.dumps(dict(target.markers))
    code, lines = _run([sys.executable, "-c", program, markers, target.executable, *arguments], folder, tell)
    if code:
        raise pip_failed(code, lines, target)


def run_program(program: str, argument: str, folder: Path, what: str) -> None:
    """Run the text of a program with the lab's own Python, in a folder.

    Raises:
        ClusterError: it fails.
    """
    code, lines = _run([sys.executable, "-I", "-c", program, argument], folder)
    if code:
        raise ClusterError(f"{what} failed: {shown(lines[-1] if lines else code, 300)}")


def ask_python(python: str, what: str, folder: Path, *packages: str) -> Target:
    """What a Python of this machine has, with what is in further folders of packages.

    Raises:
        ClusterError: it does not say.
    """
    return Target.told(what, "\n".join(_run([python, "-c", probe_text(), *packages], folder)[1]))


def _run(command: Sequence[str], folder: Path, tell: Callable[[str], None] = lambda _: None) -> tuple[int, list[str]]:
    """Run a command, which has to say something from time to time; returns its exit code and what it printed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **_ENVIRONMENT},
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    lines, arriving = list[str](), queue.SimpleQueue[str | None]()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                arriving.put("".join(one if one.isprintable() else repr(one)[1:-1] for one in line.rstrip()))
        arriving.put(None)

    threading.Thread(target=read, name="lab-pip", daemon=True).start()
    try:
        while (line := arriving.get(timeout=SILENT_S)) is not None:
            lines.append(line)
            if line.startswith(("Collecting ", "Downloading ")):
                tell(f"packages: {clip(_brief(line), _LONGEST)}")
            elif line.startswith("WARNING: Retrying "):
                tell("packages: the index does not answer, pip tries again")
        return process.wait(timeout=SILENT_S), lines
    except queue.Empty:
        hint = "try `pip download` of the same packages by hand"
        raise ClusterError(f"no word from pip for {format_duration(SILENT_S)}", hint) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=SILENT_S)


def _brief(line: str) -> str:
    """`downloading tqdm-4.67.1-py3-none-any.whl (78 kB)`: without addresses, which may hold passwords."""
    word, _, rest = line.partition(" ")
    name, *size = rest.split() or [""]
    name = name.rpartition("/")[2].partition("#")[0]
    return " ".join([word.lower(), name, *(size if word == "Downloading" else [])])


_INDEX = (
    "pip's own configuration names the index: PIP_INDEX_URL, pip.conf; "
    "without one, PIP_NO_INDEX=1 and PIP_FIND_LINKS=FOLDER"
)
_CONFLICT = re.compile(r"^\s+(?:The user requested )?(?P<what>.+?)\s*$")
_CONSTRAINT = re.compile(r"^\(constraint\) (?P<name>[\w.-]+)===(?P<version>\S+)$")
_NOTHING_FITS = re.compile(
    r"(?:No matching distribution found for|Could not find a version that satisfies the requirement) (?P<what>[^\s(]+)"
)
_INVALID = re.compile(
    r"^ERROR: (?P<what>\S+) has an invalid wheel, (?:\S+ has an invalid wheel, )?(?P<why>.*)$", re.MULTILINE
)
_VERSIONS = re.compile(r"\(from versions: (?P<versions>[^)]*)\)")
_UNREACHABLE = re.compile(
    r"connection broken|NewConnectionError|NameResolutionError|Temporary failure in name|Name or service not known"
    r"|ConnectTimeout|ReadTimeout|SSLError|CERTIFICATE_VERIFY_FAILED|Could not fetch URL|Network is unreachable",
    re.IGNORECASE,
)
_ERRNO = re.compile(r"\[Errno -?\d+\] ([^'\")\]]+)")
_PASSWORD = re.compile(r"(?<=//)[^/@\s]+@")


def pip_failed(code: int, lines: Sequence[str], target: Target) -> LabError:
    """The error for a call of pip that failed.

    Args:
        code: its exit code.
        lines: what it said.
        target: the Python that the packages were for.
    """
    if code == NO_PIP:
        hint = f"{sys.executable} -m ensurepip, or install pip into the lab's environment in your own way"
        return ClusterUnfit(f"packages are fetched by pip, which {sys.executable} does not have", hint)
    text = "\n".join(lines)
    if REFUSED in text:
        names = [line.split()[1] for line in lines if line.startswith("Collecting ") and len(line.split()) > 1]
        hint = "name a version of which there is a wheel, or make one with `pip wheel` and name its path"
        return ClusterUnfit(f"{_one_line(names[-1]) if names else 'a package'} cannot be installed: {REFUSED}", hint)
    if "conflicting dependencies" in text:
        return _conflict(lines, target)
    invalid = _INVALID.search(text)
    if invalid:
        hint = "leave this package out, or take another version of it"
        return ClusterUnfit(f"a wheel of {invalid['what']} is damaged: {_one_line(invalid['why'])}", hint)
    nothing = _NOTHING_FITS.search(text)
    unreachable = next(filter(_UNREACHABLE.search, lines), None)
    if unreachable is not None:
        what = f" for {nothing['what']}" if nothing else ""
        said = _ERRNO.search(unreachable) or _UNREACHABLE.search(unreachable)
        why = said[said.lastindex or 0].strip() if said else ""
        return ClusterError(f"pip cannot reach a package index{what}: {why}", _INDEX)
    if nothing:
        versions = _VERSIONS.search(text)
        known = versions["versions"].strip() if versions else ""
        there = "" if known in ("", "none") else f"; there are {clip(known, 100)}"
        message = f"no wheel of {nothing['what']} fits {target.what} ({target.name}){there}"
        return ClusterUnfit(message, f"check its name and version; only wheels are installed; {_INDEX}")
    if "no space left on device" in text.lower():
        return ClusterError("packages cannot be fetched: no space left on device", "make room, or set XDG_CACHE_HOME")
    errors = [line.partition("ERROR: ")[2] for line in lines if line.startswith("ERROR: ")]
    if not errors or errors[0] == "Exception:":  # its last words are those of a traceback
        errors = [line for line in reversed(lines) if line.strip()] or [f"exit code {code}"]
    return ClusterError(f"pip cannot fetch the packages: {_one_line(errors[0])}", _INDEX)


def _conflict(lines: Sequence[str], target: Target) -> ClusterUnfit:
    """Who wants what, of packages that do not go together."""
    wants, there = list[str](), list[str]()
    after = dropwhile(lambda line: not line.startswith("The conflict is caused by"), lines)
    for conflict in takewhile(bool, map(_CONFLICT.match, islice(after, 1, None))):
        what = conflict["what"] if conflict else ""
        fixed = _CONSTRAINT.match(what)
        if fixed:
            there.append(f"{fixed['name']} {fixed['version']}")
        else:
            wants.append(what.replace(" depends on ", " needs "))
    wanted = listing(wants[:6]) or "the packages that were asked for"
    has = f", and {target.what} has {listing(there)}, which stays" if there else ""
    hint = "ask for other versions" + (f", {target.other_image}" if there else "")
    return ClusterUnfit(f"the requirements contradict each other: {wanted}{has}", hint)


def _one_line(text: str) -> str:
    return clip(_PASSWORD.sub("", " ".join(text.split())), 300)


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
