"""Turns what pip says of a failure into one sentence and something to do. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from lab.errors import ClusterError, ClusterUnfit, LabError
from lab.features.packages.pip_program import NO_PIP, REFUSED
from lab.features.packages.target import Target
from lab.words import clip, listing

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
