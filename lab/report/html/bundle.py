"""Puts the page's own files into it: style, modules of JavaScript, data.

The modules are plain ES modules that name each other `lab/<file>`; an import map with `data:` addresses makes them
loadable from a file that is opened from disk, without a bundler.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent / "assets"
_STYLES = ("base", "verdict", "steps", "timeline", "tables", "lines", "media")
"""In this order: the last one changes what those before it say."""
START = 'import { start } from "lab/main"; start();'
"""The page's only script of its own."""


@lru_cache(maxsize=1)
def import_map() -> str:
    """The import map as JSON."""
    imports = {}
    for path in sorted(ASSETS.glob("*.js")):
        text = path.read_text(encoding="utf-8") + f"\n//# sourceURL=lab/{path.name}\n"
        imports[f"lab/{path.stem}"] = f"data:text/javascript;base64,{_base64(text.encode())}"
    return json.dumps({"imports": imports})


@lru_cache(maxsize=1)
def style_sheet() -> str:
    """The style sheets as one."""
    return "".join((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)


def template() -> str:
    """The page's template."""
    return (ASSETS / "report.html.j2").read_text(encoding="utf-8")


def pack(data: Any) -> str:
    """Data as JSON, compressed, as base64: only letters that mean nothing in HTML."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return _base64(gzip.compress(text.encode("utf-8", "replace"), compresslevel=6, mtime=0))


def policy() -> str:
    """The content security policy: nothing from any network, and no script but the page's own."""
    hashes = " ".join(_hash(script) for script in (import_map(), START))
    return (
        f"default-src 'none'; script-src {hashes} data:; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
