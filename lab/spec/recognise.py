"""Which YAML files are scenarios, among the many in other people's folders; cheap, and without reading YAML."""

from __future__ import annotations

import re
from pathlib import Path

from lab.spec.regular import read_head

_SCRIPT = re.compile(rb"""^['"]?script['"]?[ \t]*:[ \t]+(?:'([^'\n]+)'|"([^"\n]+)"|([^\s'"#][^#\n]*))""", re.MULTILINE)
_EXPECT = re.compile(rb"""^['"]?expect['"]?[ \t]*:[ \t\r]*(?:[{#]|$)""", re.MULTILINE)
_KEY = re.compile(rb"""^['"]?([^\s#'"{\[-][^\n:'"]*?)['"]?[ \t]*:(?:\s|$)""", re.MULTILINE)
_NEXT_DOCUMENT = re.compile(rb"^(?:---|\.\.\.)(?:\s|$)", re.MULTILINE)
_HEAD_BYTES = 65536
_SIZES = ("nodes", "nproc_per_node")
_NEAR = 0.8
"""Keys of others are not that like those of scenarios: `stage` is as like `trace` as many a slip of the pen."""


def looks_like_one(path: Path) -> bool:
    """Whether a YAML file is meant for a scenario.

    It is if it names a script that is there. One that is not there, or has another name, is a slip of the pen only
    among keys that scenarios have: files of others have a `script:` or an `expect:`, too.
    """
    head = read_head(path, _HEAD_BYTES)
    head = next((part for part in _NEXT_DOCUMENT.split(head) if _KEY.search(part)), b"")
    found, expects = _SCRIPT.search(head), _EXPECT.search(head) is not None
    if found is None:
        return expects and _has_keys_of_scenarios(head, "script", *_SIZES)
    name = (found[1] or found[2] or found[3]).decode("utf-8", "replace").strip()
    if (path.parent / name).is_file():
        return True
    is_script = name.endswith(".py") and not any(map(str.isspace, name))
    return (is_script or expects) and _has_keys_of_scenarios(head, "script")


def _has_keys_of_scenarios(head: bytes, *one_of: str) -> bool:
    """Whether all keys at the top level are those of a scenario, or nearly; and one of these is among them."""
    from lab.keys.declare import every_key
    from lab.keys.problems import near
    from lab.spec.scenario import Scenario

    known, keys = every_key(Scenario), _KEY.findall(head)
    if len(keys) > 2 * len(known):
        return False
    meant = set()
    for key in keys:
        meant.add(near(key.decode("utf-8", "replace"), known, _NEAR))
        if None in meant:
            return False
    return not meant.isdisjoint(one_of)
