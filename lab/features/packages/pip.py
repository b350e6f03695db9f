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
from itertools import dropwhile, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
