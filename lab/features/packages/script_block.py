"""What a script says of itself in comments (PEP 723): the packages that it needs.

# /// script
# dependencies = ["tqdm", "accelerate>=1"]
# ///
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.features.packages.requirements import ONE, Wrong, merged, normal
from lab.spec.reading import Position, Reading, shown

_OPENED = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_END = "# ///"
_AT_LINE = r" \(at (?:line (\d+), column (\d+)|end of document)\)$"
_MAX_BYTES = 1024 * 1024
_LONGEST_BLOCK = 32 * 1024
"""Characters of a block: a parser of TOML takes quadratic time on some texts."""


def read_block(script: Path) -> tuple[str, ...]:
    """The requirements in the block of a script; none where it has no such block.

    Raises:
        ScenarioError: the block cannot be read; the message names the line of the script.
    """
    with open(script, "rb") as file:
        data = file.read(_MAX_BYTES)
    reading = Reading(script)
    found = _read(data.decode("utf-8", "replace").splitlines(), script, reading)
    reading.raise_if_any()
    return found


def _find_blocks(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The type of each block, and where its content begins and ends, as the regular expression of PEP 723 has it.

    A block ends at the last `# ///` of the comments that follow its first line.
    """
    begin, comments_end, last_end = 0, 0, -1
    while begin < len(lines):
        opened = _OPENED.fullmatch(lines[begin])
        begin += 1
        if opened is None:
            continue
        if begin > comments_end:
            comments_end, last_end = begin, -1
        while comments_end < len(lines) and (lines[comments_end] == "#" or lines[comments_end].startswith("# ")):
            if lines[comments_end] == _END:
                last_end = comments_end
            comments_end += 1
        if last_end > begin:
            yield opened[1], begin, last_end
            begin = last_end + 1


def _read(text: Sequence[str], script: Path, reading: Reading) -> tuple[str, ...]:
    blocks = [(begin, end) for kind, begin, end in _find_blocks(text) if kind == "script"]
    if len(blocks) > 1:
        again = f"found a second block '# /// script', after line {blocks[0][0]}; allowed: one"
        reading.add(Position(blocks[1][0]), again)
    if not blocks:
        opened = next((number for number, line in enumerate(text, 1) if line == "# /// script"), None)
        if opened is not None:
            end = "allowed: comments up to a line '# ///'"
            reading.add(Position(opened), f"found a block '# /// script' that has no end; {end}")
        return ()
    first = blocks[0][0] + 1
    lines = [line[2:] for line in text[slice(*blocks[0])]]
    length = sum(map(len, lines))
    if length > _LONGEST_BLOCK:
        reading.add(Position(first - 1), f"found a block of {length:,} characters; allowed: {_LONGEST_BLOCK:,}")
        return ()
    said = _parse("\n".join(lines), first, reading)
    listed = said.get("dependencies", [])
    at = next((number for number, line in enumerate(lines) if line.lstrip().startswith("dependencies")), 0)
    if not isinstance(listed, list):
        reading.add(Position(first + at), f"dependencies: found {shown(listed)}; allowed: a list of requirements")
        return ()
    found = []
    for one in listed:
        place = next((n for n, line in enumerate(lines) if n >= at and isinstance(one, str) and one in line), at)
        try:
            found.append(normal(one, script.parent, within=script.parent) if isinstance(one, str) else _refuse(one))
        except Wrong as wrong:
            reading.add(Position(first + place, 1), f"dependencies: {wrong}")
    return merged(found)


def _refuse(one: object) -> str:
    raise Wrong(f"found {shown(one)}; allowed: {ONE}")


def _parse(toml: str, first: int, reading: Reading) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        said: dict[str, Any] = tomllib.loads(toml)
        return said
    except RecursionError:
        reading.add(Position(first), "found TOML that is nested too deep; allowed: as in PEP 723")
        return {}
    except tomllib.TOMLDecodeError as error:
        where = re.search(_AT_LINE, str(error))
        line, column = (int(where[1]), int(where[2]) + 2) if where and where[1] else (toml.count("\n") + 1, 1)
        why = re.sub(_AT_LINE, "", str(error))
        reading.add(Position(first + line - 1, column), f"found what is not TOML ({why}); allowed: as in PEP 723")
        return {}
    except ValueError:  # from int()
        reading.add(Position(first), "found a number of too many digits; allowed: as in PEP 723")
        return {}
