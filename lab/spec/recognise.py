"""Which YAML files are scenarios, among the many in other people's folders; cheap, and without reading YAML."""

from __future__ import annotations

import re
from pathlib import Path

_SCRIPT = re.compile(rb"""^['"]?script['"]?[ \t]*:[ \t]+(?:'([^'\n]+)'|"([^"\n]+)"|([^\s'"#][^#\n]*))""", re.MULTILINE)
_EXPECT = re.compile(rb"""^['"]?expect['"]?[ \t]*:""", re.MULTILINE)
_HEAD_BYTES = 65536


def looks_like_one(path: Path) -> bool:
    """Whether a YAML file names a script at its top level, or says what it expects, as files of others do not."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    found = _SCRIPT.search(head)
    if found is None:
        return _EXPECT.search(head) is not None
    name = (found[1] or found[2] or found[3]).decode("utf-8", "replace").strip()
    return name.endswith(".py") or (path.parent / name).is_file() or _EXPECT.search(head) is not None
