"""The lines of a trace as a reader understands them, whichever recorder wrote them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lab.trace import contents

Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    """Every line, with bytes in base64 made elements or a summary."""
    described: dict[int, list[Any]] = {}
    lines = []
    for text in path.read_text().splitlines():
        line: Line = json.loads(text)
        if line["k"] == "begin":
            described[line["i"]] = line.get("out", line.get("in", []))
            _understand(line, line.get("in", []))
        elif line["k"] == "end":
            _understand(line, described[line["i"]])
        lines.append(line)
    return lines


def _understand(line: Line, described: list[Any]) -> None:
    for key in line.keys() & {"iv", "ov"}:
        line[key] = [contents.elements(said, dtype) for said, (dtype, _) in zip(line[key], described, strict=True)]
    for key in line.keys() & {"is", "os"}:
        line[key] = [
            contents.summary(said, dtype, math.prod(shape))
            for said, (dtype, shape) in zip(line[key], described, strict=True)
        ]
