"""Packages that a script needs besides what its nodes have: in a list, a file, or a block of the script (PEP 723)."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import ScenarioError, UsageError
from lab.frozen import Frozen
from lab.spec.declare import key_field
from lab.spec.kinds import Kind, list_of, read_text
from lab.spec.reading import Position, Reading, Value, clip_repr, missing_file

ONE = "a requirement as pip takes it, such as tqdm or 'accelerate>=1'"
_ALL = "a file such as requirements.txt, or a list of requirements such as [tqdm, 'accelerate>=1']"
_WHEEL = "the path or the address of a wheel (.whl)"
_CONFIGURED = "an index, and options, come from pip's own configuration, such as PIP_INDEX_URL or pip.conf"
_MAX_BYTES = 1024 * 1024
_LONGEST = 4096
"""Characters of one requirement; an address is seldom longer than 2,000."""
_MAX_NESTED = 20
"""Files that name one another with `-r`."""
_OUTSIDE = "which is outside of the folder of the scenario; allowed: files in it, and any with --requirements FILE"
_NAME = r"[A-Za-z0-9._-]+"
_COMMENT = r"(?:^|\s+)#.*$"
_OTHER_FILE = r"(?:-r|--requirement)(?:\s*=\s*|\s+|(?=[^-\s]))(.+)"


class Wrong(ValueError):
    """Why a text is no requirement: what was found, and what is allowed."""


def requirement_list() -> Kind:
    """A file of requirements, relative to the YAML file, or a list of them."""

    def read_one(value: Value) -> str:
        text = read_text(value, ONE, quotable=False)
        try:
            return normal(text, value.reading.folder, within=value.reading.folder)
        except Wrong as wrong:
            raise value.problem(str(wrong)) from None

    several = list_of(Kind(ONE, read_one, {"type": "string", "minLength": 1}), _ALL)

    def read(value: Value) -> tuple[str, ...]:
        if value.kind != "text":
            return merged(several.read(value))
        path = value.reading.folder / read_text(value, _ALL)
        if not path.is_file() and _is_name(value.raw):
            raise value.refused(_ALL, f", which is no file (did you mean [{value.raw}]?)")
        if not is_within(path, value.reading.folder):
            raise value.problem(f"found {clip_repr(value.raw, 200)}, {_OUTSIDE}")
        try:
            return read_file(path, Path(value.raw), within=value.reading.folder)
        except ScenarioError as error:
            for line in error.message.splitlines():
                value.reading.add(value.where, f"{value.field}: {line}")
            return ()

    schema = {"anyOf": [{"type": "string", "minLength": 1}, several.schema]}
    return Kind(_ALL, read, schema, list)


class PackagesKeys(Frozen):
    """What scenarios say of packages."""

    requirements: tuple[str, ...] = key_field((), requirement_list(), "requirements: [tqdm, 'accelerate>=1']", "none")
    """Packages that the script needs besides what its nodes have: a file such as `requirements.txt`, relative to this
    one, or a list; added to those that the script names itself in a block `# /// script`; see packages."""


def checked_requirements(texts: Sequence[str]) -> tuple[str, ...]:
    """Requirements that somebody names in Python; paths of wheels are relative to the current folder.

    Raises:
        UsageError: one is none.
    """
    try:
        return merged([normal(text, Path.cwd()) for text in texts])
    except Wrong as wrong:
        raise UsageError(f"requirements: {wrong}") from None


def is_within(path: Path, folder: Path | None) -> bool:
    """Whether a path, with its links followed, is below a folder; None: the whole machine."""
    return folder is None or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_file(path: Path, named: Path | None = None, *, within: Path | None = None) -> tuple[str, ...]:
    """The requirements in a file of pip's format, without its options; `-r FILE` reads another file too.

    A message shows a line only if its file is below the folder of the first one: others may hold secrets.

    Args:
        path: the file.
        named: how somebody named it, if not by its path.
        within: the folder that holds every file that may be read; None: any file may be.

    Raises:
        ScenarioError: a line is none; the message names every such line.
    """
    files = _Files(within, Path(os.path.abspath(path)).parent)
    return merged(_read_lines(path, Reading(named or path), [], files))


class _Files(NamedTuple):
    """Which files may be read, and whose lines may be shown."""

    within: Path | None
    shown_below: Path


def _read_lines(path: Path, reading: Reading, outer: Sequence[str], files: _Files) -> list[str]:
    """The requirements in a file and in those that it names; `outer`: the files that have led here."""
    found, seen, may_show = list[str](), [*outer, os.path.realpath(path)], is_within(path, files.shown_below)
    for number, line in _logical_lines(_read_text(path, reading)):
        other = re.fullmatch(_OTHER_FILE, line)
        name = os.path.expanduser(other[1].strip()) if other else ""
        try:
            if not other:
                found.append(normal(line, path.parent, within=files.within))
            elif not is_within(path.parent / name, files.within):
                reading.add(Position(number), f"found {clip_repr(name, 200)}, {_OUTSIDE}")
            elif len(seen) >= _MAX_NESTED:
                reading.add(Position(number), f"found file {len(seen) + 1} in one another; allowed: {_MAX_NESTED}")
            elif os.path.realpath(path.parent / name) not in seen:
                found += _read_lines(path.parent / name, Reading(Path(name)), seen, files)
        except Wrong as wrong:
            what = str(wrong) if may_show else f"found a line that is none; allowed: {ONE}"
            reading.add(Position(number), what)
        except ScenarioError as error:
            for problem in error.message.splitlines():
                reading.add(Position(number), problem)
    reading.raise_if_any()
    return found


def _read_text(path: Path, reading: Reading) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, encoding="utf-8-sig") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Is no regular file")
            return file.read(_MAX_BYTES)
    except UnicodeDecodeError:
        reading.add(Position(), "is no text in UTF-8; allowed: a file of requirements")
    except OSError as error:
        why = error.strerror if os.path.lexists(path) else missing_file("file", path)
        reading.add(Position(), f"{why}; allowed: a file of requirements")
    return ""


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that says something, with its number; one that ends with a backslash goes on in the next."""
    begun, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first if begun else number
        begun += line.removesuffix("\\")
        if not line.endswith("\\"):
            if whole := re.sub(_COMMENT, "", begun).strip():
                yield first, whole
            begun = ""


def normal(text: str, folder: Path, *, within: Path | None = None) -> str:
    """A requirement in the one way to write it; the path of a wheel, relative to a folder, becomes one as well.

    Args:
        text: the requirement.
        folder: what a path is relative to.
        within: the folder that holds every wheel that may be named by its path; None: any may be.

    Raises:
        Wrong: it is none.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

    text = text.strip()
    if len(text) > _LONGEST:
        raise Wrong(f"found {clip_repr(text)} of {len(text):,} characters; allowed: {_LONGEST:,}")
    if text.startswith("-"):
        raise Wrong(f"found the option {clip_repr(text.split()[0])} of pip; allowed: {ONE}; {_CONFIGURED}")
    if " --hash" in text:
        raise Wrong(f"found a requirement with --hash; allowed: {ONE}, without hashes")
    if text.endswith(".whl") and "@" not in text:
        path = Path(os.path.abspath(folder / os.path.expanduser(text)))
        try:
            text = f"{parse_wheel_filename(path.name)[0]} @ {path.as_uri()}"
        except InvalidWheelFilename:
            raise Wrong(f"found {clip_repr(text)}, whose name is not that of a wheel; allowed: {ONE}") from None
    try:
        found = Requirement(text)
    except RecursionError:
        raise Wrong(f"found {clip_repr(text)}, which is nested too deep; allowed: {ONE}") from None
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0].strip().rstrip(":.")
        raise Wrong(f"found {clip_repr(text)} ({why[:1].lower()}{why[1:]}); allowed: {ONE}") from None
    if found.url is not None:
        _check_address(found.url, within)
    found.name = canonicalize_name(found.name)
    return str(found)


def _check_address(url: str, within: Path | None) -> None:
    """Only a wheel can be installed without running anything of it on this machine."""
    from urllib.parse import urlsplit

    address, path = urlsplit(url), wheel_path(url)
    if address.scheme not in ("file", "http", "https") or not address.path.endswith(".whl"):
        raise Wrong(f"found the address {clip_repr(url, 200)}; allowed: {_WHEEL}, or a name and a version")
    if path is not None and not is_within(Path(path or "/"), within):
        raise Wrong(f"found {clip_repr(url, 200)}, {_OUTSIDE}")
    if path is not None and not os.path.isfile(path):
        raise Wrong(f"found {clip_repr(url, 200)}, which does not exist; allowed: {_WHEEL}")


def wheel_path(url: str) -> str | None:
    """The path of a wheel that a `file:` address names; None for any other address."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    address = urlsplit(url)
    return url2pathname(address.path) if address.scheme == "file" else None


def package_of(requirement: str) -> str:
    """The name of the package that a normal requirement is about."""
    found = re.match(_NAME, requirement)
    return found[0] if found else requirement


def merged(*lists: Iterable[str]) -> tuple[str, ...]:
    """All of them, in the order of their names; of a package that several lists name, what the last of them says."""
    merged_by_package: dict[str, list[str]] = {}
    for requirements in lists:
        for name, of_package in groupby(sorted(set(requirements), key=lambda one: (package_of(one), one)), package_of):
            merged_by_package[name] = list(of_package)
    return tuple(one for name in sorted(merged_by_package) for one in merged_by_package[name])


def _is_name(text: str) -> bool:
    try:
        normal(text, Path())
    except Wrong:
        return False
    return "/" not in text and not text.endswith((".txt", ".in", ".whl"))


_OPENED = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_END = "# ///"
_AT_LINE = r" \(at (?:line (\d+), column (\d+)|end of document)\)$"
_LONGEST_BLOCK = 32 * 1024
"""Characters of a block: a parser of TOML takes quadratic time on some texts."""


def read_block(script: Path) -> tuple[str, ...]:
    """The requirements in the block of a script; none where it has no such block.

    Raises:
        ScenarioError: the block cannot be read; the message names the line of the script.
    """
    with open(script, "rb") as file:
        text = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    reading, blocks = Reading(script), [(begin, end) for kind, begin, end in _find_blocks(text) if kind == "script"]
    begin, end = blocks[0] if blocks else (0, 0)
    content = [line[2:] for line in text[begin:end]]
    length = sum(map(len, content))
    requirements: tuple[str, ...] = ()
    if len(blocks) > 1:
        again = f"found a second block '# /// script', after line {begin}; allowed: one"
        reading.add(Position(blocks[1][0]), again)
    elif not blocks and "# /// script" in text:
        why = "found a block '# /// script' that has no end; allowed: comments up to a line '# ///'"
        reading.add(Position(text.index("# /// script") + 1), why)
    elif length > _LONGEST_BLOCK:
        reading.add(Position(begin), f"found a block of {length:,} characters; allowed: {_LONGEST_BLOCK:,}")
    elif blocks:
        requirements = _read_dependencies(content, begin + 1, script.parent, reading)
    reading.raise_if_any()
    return requirements


def _find_blocks(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The type of each block, and where its content begins and ends, as the regular expression of PEP 723 has it.

    A block ends at the last `# ///` of the comments that follow its first line.
    """
    ends = [-1] * (len(lines) + 1)
    for at in reversed(range(len(lines))):
        if lines[at] == "#" or lines[at].startswith("# "):
            ends[at] = at if lines[at] == _END and ends[at + 1] < 0 else ends[at + 1]
    begin = 0
    while begin < len(lines):
        opened, begin = _OPENED.fullmatch(lines[begin]), begin + 1
        if opened and ends[begin] > begin:
            yield opened[1], begin, ends[begin]
            begin = ends[begin] + 1


def _read_dependencies(lines: Sequence[str], first: int, folder: Path, reading: Reading) -> tuple[str, ...]:
    listed = _parse("\n".join(lines), first, reading).get("dependencies", [])
    at = next((number for number, line in enumerate(lines) if line.lstrip().startswith("dependencies")), 0)
    if not isinstance(listed, list):
        reading.add(Position(first + at), f"dependencies: found {clip_repr(listed)}; allowed: a list of requirements")
        return ()
    requirements = []
    for one in listed:
        try:
            if not isinstance(one, str):
                raise Wrong(f"found {clip_repr(one)}; allowed: {ONE}")
            requirements.append(normal(one, folder, within=folder))
        except Wrong as wrong:
            place = next((n for n in range(at, len(lines)) if isinstance(one, str) and one in lines[n]), at)
            reading.add(Position(first + place), f"dependencies: {wrong}")
    return merged(requirements)


def _parse(toml: str, first: int, reading: Reading) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        said: dict[str, Any] = tomllib.loads(toml)
        return said
    except (ValueError, RecursionError) as error:  # also of a number of too many digits
        where, why = re.search(_AT_LINE, str(error)), re.sub(_AT_LINE, "", str(error))
    line, column = (int(where[1]), int(where[2]) + 2) if where and where[1] else (toml.count("\n") + 1, 1)
    reading.add(Position(first + line - 1, column), f"found what is not TOML ({why}); allowed: as in PEP 723")
    return {}
