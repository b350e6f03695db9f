"""Read requirements of packages from scenarios, files, scripts, and Python, and normalize them."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from lab.errors import ScenarioError, UsageError
from lab.frozen import Frozen
from lab.spec.declare import key_field
from lab.spec.kinds import Kind, list_of, read_text
from lab.spec.reading import Position, Reading, Value, clip_repr, missing_file

ONE = "a requirement as pip accepts it, such as tqdm or 'accelerate>=1'"
_ALL = "a file such as requirements.txt, or a list of requirements such as [tqdm, 'accelerate>=1']"
_WHEEL = "the path or the address of a wheel (.whl)"
_CONFIGURED = "set the index and options in pip's own configuration, such as PIP_INDEX_URL or pip.conf"
_MAX_BYTES = 1024 * 1024
_LONGEST = 4096
"""Characters of one requirement; an address rarely exceeds 2,000."""
_MAX_NESTED = 20
"""Files that refer to each other with `-r`."""
_OUTSIDE = "which is outside of the folder of the scenario; allowed: files in it, and any with --requirements FILE"
_NAME = r"[A-Za-z0-9._-]+"
_COMMENT = r"(?:^|\s+)#.*$"
_OTHER_FILE = r"(?:-r|--requirement)(?:\s*=\s*|\s+|(?=[^-\s]))(.+)"


class RequirementProblem(ValueError):
    """Why a text is not a requirement: the text, and the allowed forms."""


def requirement_list() -> Kind:
    """Return the kind of a file of requirements, relative to the YAML file, or a list of them."""

    def read_one(value: Value) -> str:
        text = read_text(value, ONE, quotable=False)
        try:
            return normalize_requirement(text, value.reading.folder, within=value.reading.folder)
        except RequirementProblem as problem:
            raise value.problem(str(problem)) from None

    list_kind = list_of(Kind(ONE, read_one, {"type": "string", "minLength": 1}), _ALL)

    def read(value: Value) -> tuple[str, ...]:
        if value.kind != "text":
            return merge_requirements(list_kind.read(value))
        path = value.reading.folder / read_text(value, _ALL)
        if not path.is_file() and _is_name(value.raw):
            raise value.refused(_ALL, f", which is not a file (did you mean [{value.raw}]?)")
        if not is_within(path, value.reading.folder):
            raise value.problem(f"found {clip_repr(value.raw, 200)}, {_OUTSIDE}")
        try:
            return read_file(path, Path(value.raw), within=value.reading.folder)
        except ScenarioError as error:
            for line in error.message.splitlines():
                value.reading.add(value.where, f"{value.field}: {line}")
            return ()

    return Kind(_ALL, read, {"anyOf": [{"type": "string", "minLength": 1}, list_kind.schema]}, list)


class PackagesKeys(Frozen):
    """Keys of scenarios for packages."""

    requirements: tuple[str, ...] = key_field((), requirement_list(), "requirements: [tqdm, 'accelerate>=1']", "none")
    """Packages that the script needs besides what its nodes have: a file such as `requirements.txt`, relative to this
    one, or a list; added to those that the script names itself in a block `# /// script`; see packages."""


def checked_requirements(texts: Sequence[str]) -> tuple[str, ...]:
    """Check requirements from Python; paths of wheels are relative to the current folder.

    Raises:
        UsageError: A text is not a requirement.
    """
    try:
        return merge_requirements([normalize_requirement(text, Path.cwd()) for text in texts])
    except RequirementProblem as problem:
        raise UsageError(f"requirements: {problem}") from None


def is_within(path: Path, folder: Path | None) -> bool:
    """Return whether a path, with its links followed, is below a folder; None: the whole machine."""
    return folder is None or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_file(path: Path, named: Path | None = None, *, within: Path | None = None) -> tuple[str, ...]:
    """Read the requirements in a file of pip's format, without its options; `-r FILE` reads another file too.

    A message shows a line only if its file is below the folder of the first one: others may hold secrets.

    Args:
        path: The file.
        named: The name to show, if not its path.
        within: Read only files below this folder; None: any file.

    Raises:
        ScenarioError: A line is not a requirement; the message names every such line.
    """
    shown_below = Path(os.path.abspath(path)).parent
    return merge_requirements(_read_lines(path, Reading(named or path), [], within, shown_below))


def _read_lines(
    path: Path, reading: Reading, outer: Sequence[str], within: Path | None, shown_below: Path
) -> list[str]:
    """Read the requirements in a file and in those it refers to.

    Args:
        path: The file.
        reading: Collects its problems.
        outer: The files that led here.
        within: The folder whose files it may read; None: any.
        shown_below: The folder of files whose lines messages may show.
    """
    requirements, opened, may_show = list[str](), [*outer, os.path.realpath(path)], is_within(path, shown_below)
    for number, line in _logical_lines(_read_text(path, reading)):
        other = re.fullmatch(_OTHER_FILE, line)
        name = os.path.expanduser(other[1].strip()) if other else ""
        try:
            if not other:
                requirements.append(normalize_requirement(line, path.parent, within=within))
            elif not is_within(path.parent / name, within):
                reading.add(Position(number), f"found {clip_repr(name, 200)}, {_OUTSIDE}")
            elif len(opened) >= _MAX_NESTED:
                reading.add(Position(number), f"found {len(opened) + 1} nested files; allowed: {_MAX_NESTED}")
            elif os.path.realpath(path.parent / name) not in opened:
                requirements += _read_lines(path.parent / name, Reading(Path(name)), opened, within, shown_below)
        except RequirementProblem as refusal:
            reading.add(Position(number), str(refusal) if may_show else f"found an invalid line; allowed: {ONE}")
        except ScenarioError as error:
            for problem in error.message.splitlines():
                reading.add(Position(number), problem)
    reading.raise_if_any()
    return requirements


def _read_text(path: Path, reading: Reading) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, encoding="utf-8-sig") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            return file.read(_MAX_BYTES)
    except UnicodeDecodeError:
        reading.add(Position(), "is not text in UTF-8; allowed: a file of requirements")
    except OSError as error:
        why = error.strerror if os.path.lexists(path) else missing_file("file", path)
        reading.add(Position(), f"{why}; allowed: a file of requirements")
    return ""


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each non-empty line with its number; a line that ends with a backslash continues on the next."""
    begun, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        first = first if begun else number
        begun += line.removesuffix("\\")
        if not line.endswith("\\"):
            if whole := re.sub(_COMMENT, "", begun).strip():
                yield first, whole
            begun = ""


def normalize_requirement(text: str, folder: Path, *, within: Path | None = None) -> str:
    """Return a requirement in its normal form; the path of a wheel, relative to a folder, becomes an address.

    Args:
        text: The requirement.
        folder: The folder of a relative path.
        within: Only a wheel below this folder may have a path; None: any wheel.

    Raises:
        RequirementProblem: The text is not a requirement.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

    text = text.strip()
    if len(text) > _LONGEST:
        raise RequirementProblem(f"found {clip_repr(text)} of {len(text):,} characters; allowed: {_LONGEST:,}")
    if text.startswith("-"):
        raise RequirementProblem(f"found the option {clip_repr(text.split()[0])} of pip; allowed: {ONE}; {_CONFIGURED}")
    if " --hash" in text:
        raise RequirementProblem(f"found a requirement with --hash; allowed: {ONE}, without hashes")
    if text.endswith(".whl") and "@" not in text:
        path = Path(os.path.abspath(folder / os.path.expanduser(text)))
        try:
            text = f"{parse_wheel_filename(path.name)[0]} @ {path.as_uri()}"
        except InvalidWheelFilename:
            why = f"found {clip_repr(text)}, which is not the name of a wheel"
            raise RequirementProblem(f"{why}; allowed: {ONE}") from None
    try:
        requirement = Requirement(text)
    except RecursionError:
        raise RequirementProblem(f"found {clip_repr(text)}, which is nested too deep; allowed: {ONE}") from None
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0].strip().rstrip(":.")
        raise RequirementProblem(f"found {clip_repr(text)} ({why[:1].lower()}{why[1:]}); allowed: {ONE}") from None
    if requirement.url is not None:
        _check_address(requirement.url, within)
    requirement.name = canonicalize_name(requirement.name)
    return str(requirement)


def _check_address(url: str, within: Path | None) -> None:
    """Refuse addresses of anything but a wheel: installing others would run their code on this machine."""
    address, path = urlsplit(url), wheel_path(url)
    if address.scheme not in ("file", "http", "https") or not address.path.endswith(".whl"):
        raise RequirementProblem(f"found the address {clip_repr(url, 200)}; allowed: {_WHEEL}, or a name and a version")
    if path is not None and not is_within(Path(path or "/"), within):
        raise RequirementProblem(f"found {clip_repr(url, 200)}, {_OUTSIDE}")
    if path is not None and not os.path.isfile(path):
        raise RequirementProblem(f"found {clip_repr(url, 200)}, which does not exist; allowed: {_WHEEL}")


def wheel_path(url: str) -> str | None:
    """Return the path of a wheel in a `file:` address; None for any other address."""
    from urllib.request import url2pathname

    address = urlsplit(url)
    return url2pathname(address.path) if address.scheme == "file" else None


def package_of(requirement: str) -> str:
    """Return the package's name of a normal requirement."""
    match = re.match(_NAME, requirement)
    return match[0] if match else requirement


def merge_requirements(*lists: Iterable[str]) -> tuple[str, ...]:
    """Merge lists, sorted by package; for a package in several lists, the last list counts."""
    merged_by_package: dict[str, list[str]] = {}
    for requirements in lists:
        for name, of_package in groupby(sorted(set(requirements), key=lambda one: (package_of(one), one)), package_of):
            merged_by_package[name] = list(of_package)
    return tuple(one for name in sorted(merged_by_package) for one in merged_by_package[name])


def _is_name(text: str) -> bool:
    try:
        normalize_requirement(text, Path())
    except RequirementProblem:
        return False
    return "/" not in text and not text.endswith((".txt", ".in", ".whl"))


_OPENED = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_END = "# ///"
_AT_LINE = r" \(at (?:line (\d+), column (\d+)|end of document)\)$"
_LONGEST_BLOCK = 32 * 1024
"""Characters of a block: a parser of TOML takes quadratic time on some texts."""


def read_block(script: Path) -> tuple[str, ...]:
    """Read the requirements in the block of a script; empty if it has none.

    Raises:
        ScenarioError: The block cannot be read; the message names the line of the script.
    """
    with open(script, "rb") as file:
        text = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    reading, blocks = Reading(script), [(begin, end) for kind, begin, end in _find_blocks(text) if kind == "script"]
    begin, end = blocks[0] if blocks else (0, 0)
    content = [line[2:] for line in text[begin:end]]
    length = sum(map(len, content))
    requirements: tuple[str, ...] = ()
    if len(blocks) > 1:
        reading.add(Position(blocks[1][0]), f"found a second block '# /// script', after line {begin}; allowed: one")
    elif not blocks and "# /// script" in text:
        why = "found a block '# /// script' without an end; allowed: comments up to a line '# ///'"
        reading.add(Position(text.index("# /// script") + 1), why)
    elif length > _LONGEST_BLOCK:
        reading.add(Position(begin), f"found a block of {length:,} characters; allowed: {_LONGEST_BLOCK:,}")
    elif blocks:
        requirements = _read_dependencies(content, begin + 1, script.parent, reading)
    reading.raise_if_any()
    return requirements


def _find_blocks(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the type of each block, and where its content begins and ends, like the regular expression of PEP 723.

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
                raise RequirementProblem(f"found {clip_repr(one)}; allowed: {ONE}")
            requirements.append(normalize_requirement(one, folder, within=folder))
        except RequirementProblem as problem:
            index = next((n for n in range(at, len(lines)) if isinstance(one, str) and one in lines[n]), at)
            reading.add(Position(first + index), f"dependencies: {problem}")
    return merge_requirements(requirements)


def _parse(toml: str, first: int, reading: Reading) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return cast("dict[str, Any]", tomllib.loads(toml))
    except (ValueError, RecursionError) as error:  # also for a number with too many digits
        where, why = re.search(_AT_LINE, str(error)), re.sub(_AT_LINE, "", str(error))
    line, column = (int(where[1]), int(where[2]) + 2) if where and where[1] else (toml.count("\n") + 1, 1)
    reading.add(Position(first + line - 1, column), f"found invalid TOML ({why}); allowed: as in PEP 723")
    return {}
