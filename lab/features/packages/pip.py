"""What packages are for, a Python and what it has, and calls of pip that fetch them."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from lab.errors import ClusterError, ClusterUnfit, LabError
from lab.features.packages import pip_program, probe
from lab.features.packages.pip_program import NO_PIP, REFUSED
from lab.features.packages.requirements import package_of
from lab.spec.reading import shown
from lab.words import clip, format_duration, listing

if TYPE_CHECKING:
    from packaging.requirements import Requirement

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
_WORTH_TELLING = ("Collecting ", "Downloading ")
_LONGEST = 100


def run_pip(target: Target, arguments: Sequence[str], folder: Path, tell: Callable[[str], None]) -> None:
    """Run pip for the packages of a Python, in a folder; its index and options are those of whoever calls.

    Raises:
        LabError: pip is not there, or fails, or says nothing for too long.
    """
    program = Path(pip_program.__file__).read_text()
    said = _follow(
        [sys.executable, "-c", program, json.dumps(dict(target.markers)), target.executable, *arguments], folder, tell
    )
    if said.code:
        raise pip_failed(said.code, said.lines, target)


def run_program(program: str, argument: str, folder: Path, what: str) -> None:
    """Run the text of a program with the lab's own Python, in a folder.

    Raises:
        ClusterError: it fails.
    """
    said = _follow([sys.executable, "-I", "-c", program, argument], folder, lambda _: None)
    if said.code:
        raise ClusterError(f"{what} failed: {shown(said.lines[-1] if said.lines else said.code, 300)}")


def ask_python(python: str, what: str, folder: Path, *packages: str) -> Target:
    """What a Python of this machine has, with what is in further folders of packages.

    Raises:
        ClusterError: it does not say.
    """
    said = _follow([python, "-c", probe_text(), *packages], folder, lambda _: None)
    return Target.told(what, "\n".join(said.lines))


class _Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.code = 0


def _follow(command: Sequence[str], folder: Path, tell: Callable[[str], None]) -> _Said:
    said, lines = _Said(), queue.SimpleQueue[str | None]()
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
    assert process.stdout is not None
    threading.Thread(target=_pump, args=(process.stdout, lines), name="lab-pip", daemon=True).start()
    try:
        while (line := _next(lines)) is not None:
            said.lines.append(line)
            if line.startswith(_WORTH_TELLING):
                tell(f"packages: {clip(_brief(line), _LONGEST)}")
            elif line.startswith("WARNING: Retrying "):
                tell("packages: the index does not answer, pip tries again")
        said.code = process.wait(timeout=SILENT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=SILENT_S)
    return said


def _pump(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put("".join(one if one.isprintable() else repr(one)[1:-1] for one in line.rstrip()))
    lines.put(None)


def _next(lines: queue.SimpleQueue[str | None]) -> str | None:
    try:
        return lines.get(timeout=SILENT_S)
    except queue.Empty:
        raise ClusterError(
            f"no word from pip for {format_duration(SILENT_S)}", "try `pip download` of the same packages by hand"
        ) from None


def _brief(line: str) -> str:
    """`downloading tqdm-4.67.1-py3-none-any.whl (78 kB)`: without addresses, which may hold passwords."""
    word, _, rest = line.partition(" ")
    parts = rest.split()
    name = parts[0].rpartition("/")[2].partition("#")[0] if parts else ""
    size = f" {' '.join(parts[1:])}" if word == "Downloading" and len(parts) > 1 else ""
    return f"{word.lower()} {name}{size}"


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
_NO_SPACE = re.compile(r"No space left on device", re.IGNORECASE)
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
        hint = "name a version of which there is a wheel, or make one with `pip wheel` and name its path"
        return ClusterUnfit(f"{_last_collected(lines)} cannot be installed: {REFUSED}", hint)
    if "conflicting dependencies" in text:
        return _conflict(lines, target)
    invalid = _INVALID.search(text)
    if invalid:
        hint = "leave this package out, or take another version of it"
        return ClusterUnfit(f"a wheel of {invalid['what']} is damaged: {_one_line(invalid['why'])}", hint)
    nothing = _NOTHING_FITS.search(text)
    if _UNREACHABLE.search(text):
        what = f" for {nothing['what']}" if nothing else ""
        return ClusterError(f"pip cannot reach a package index{what}: {_why_unreachable(lines)}", _INDEX)
    if nothing:
        versions = _VERSIONS.search(text)
        known = versions["versions"].strip() if versions else ""
        there = "" if known in ("", "none") else f"; there are {clip(known, 100)}"
        message = f"no wheel of {nothing['what']} fits {target.what} ({target.name}){there}"
        return ClusterUnfit(message, f"check its name and version; only wheels are installed; {_INDEX}")
    if _NO_SPACE.search(text):
        return ClusterError("packages cannot be fetched: no space left on device", "make room, or set XDG_CACHE_HOME")
    said = [line.partition("ERROR: ")[2] for line in lines if line.startswith("ERROR: ")]
    if not said or said[0] == "Exception:":  # its last words are those of a traceback
        said = [line for line in reversed(lines) if line.strip()]
    return ClusterError(f"pip cannot fetch the packages: {_one_line(said[0] if said else f'exit code {code}')}", _INDEX)


def _conflict(lines: Sequence[str], target: Target) -> ClusterUnfit:
    """Who wants what, of packages that do not go together."""
    wants: list[str] = []
    there: list[str] = []
    begun = False
    for line in lines:
        if line.startswith("The conflict is caused by"):
            begun = True
            continue
        found = _CONFLICT.match(line) if begun else None
        if begun and found is None:
            break
        if found is not None:
            fixed = _CONSTRAINT.match(found["what"])
            if fixed:
                there.append(f"{fixed['name']} {fixed['version']}")
            else:
                wants.append(found["what"].replace(" depends on ", " needs "))
    wanted = listing(wants[:6]) or "the packages that were asked for"
    has = f", and {target.what} has {listing(there)}, which stays" if there else ""
    hint = "ask for other versions" + (f", {target.other_image}" if there else "")
    return ClusterUnfit(f"the requirements contradict each other: {wanted}{has}", hint)


def _last_collected(lines: Sequence[str]) -> str:
    names = [line.split()[1] for line in lines if line.startswith("Collecting ") and len(line.split()) > 1]
    return _one_line(names[-1]) if names else "a package"


def _why_unreachable(lines: Sequence[str]) -> str:
    line = next(line for line in lines if _UNREACHABLE.search(line))
    said = _ERRNO.search(line) or _UNREACHABLE.search(line)
    return said[said.lastindex or 0].strip() if said else ""


def _one_line(text: str) -> str:
    return clip(_PASSWORD.sub("", " ".join(text.split())), 300)
