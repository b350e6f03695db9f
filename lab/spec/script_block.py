"""What a script says of itself in comments (PEP 723): the packages that it needs.

# /// script
# dependencies = ["tqdm", "accelerate>=1"]
# ///
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lab.keys.problems import Position, Reading, shown
from lab.spec.requirements import ONE, Wrong, merged, normal

_BLOCK = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
"""As PEP 723 has it."""
_OPENED = r"(?m)^# /// script$"
_AT_LINE = r" \(at (?:line (\d+), column (\d+)|end of document)\)$"
_MAX_BYTES = 1024 * 1024


def read_block(script: Path) -> tuple[str, ...]:
    """The requirements in the block of a script; none where it has no such block.

    Raises:
        ScenarioError: the block cannot be read; the message names the line of the script.
    """
    with open(script, "rb") as file:
        data = file.read(_MAX_BYTES)
    text = "\n".join(data.decode("utf-8", "replace").splitlines())
    reading = Reading(script)
    found = _read(text, script, reading)
    reading.raise_if_any()
    return found


def _read(text: str, script: Path, reading: Reading) -> tuple[str, ...]:
    blocks = [block for block in re.finditer(_BLOCK, f"{text}\n") if block["type"] == "script"]
    opened = [_line_of(text, found.start()) for found in re.finditer(_OPENED, text)]
    if len(blocks) > 1:
        again = _line_of(text, blocks[1].start())
        reading.add(Position(again), f"found a second block '# /// script', after line {opened[0]}; allowed: one")
    if not blocks:
        if opened:
            end = "allowed: comments up to a line '# ///'"
            reading.add(Position(opened[0]), f"found a block '# /// script' that has no end; {end}")
        return ()
    first = _line_of(text, blocks[0].start()) + 1
    lines = [line[2:] for line in blocks[0]["content"].splitlines()]
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
    except tomllib.TOMLDecodeError as error:
        where = re.search(_AT_LINE, str(error))
        line, column = (int(where[1]), int(where[2]) + 2) if where and where[1] else (toml.count("\n") + 1, 1)
        why = re.sub(_AT_LINE, "", str(error))
        reading.add(Position(first + line - 1, column), f"found what is not TOML ({why}); allowed: as in PEP 723")
        return {}


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
