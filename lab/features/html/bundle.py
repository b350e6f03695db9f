"""Puts a page's own files into it: style, modules of JavaScript, data.

The modules are plain ES modules that name each other `lab/<file>`; an import map with `data:` addresses makes them
loadable from a file that is opened from disk, without a bundler. A page holds those that its first module leads to.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from lab import __version__
from lab.report.alike import spans_text
from lab.report.harmless import harmless, harmless_json
from lab.words import format_duration, format_value, name_ranks, plural

ASSETS = Path(__file__).parent / "assets"
_STYLES = ("base", "verdict", "steps", "timeline", "tables", "lines", "files", "media")
"""In this order: the last one changes what those before it say."""
_IMPORT = re.compile(r'from "lab/(\w+)"')


@dataclass(frozen=True)
class Script:
    """The scripts of a page."""

    start: str
    """The only one that is not a module: it imports the first of them."""
    import_map: str
    """The modules, as JSON."""

    @property
    def policy(self) -> str:
        """The content security policy: nothing from any network, and no script but the page's own."""
        hashes = " ".join(_hash(script) for script in (self.import_map, self.start))
        return (
            f"default-src 'none'; script-src {hashes} data:; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )


@lru_cache
def script_of(first: str) -> Script:
    """The scripts of the page that begins with `start` of this module."""
    texts: dict[str, str] = {}
    wanted = [first]
    while wanted:
        name = wanted.pop()
        if name not in texts:
            texts[name] = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
            wanted += _IMPORT.findall(texts[name])
    named = {name: f"{text}\n//# sourceURL=lab/{name}.js\n" for name, text in sorted(texts.items())}
    imports = {f"lab/{name}": f"data:text/javascript;base64,{_base64(text.encode())}" for name, text in named.items()}
    return Script(f'import {{ start }} from "lab/{first}"; start();', json.dumps({"imports": imports}))


@lru_cache(maxsize=1)
def style_sheet() -> str:
    """The style sheets as one."""
    return "".join((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)


def render(template: str, first: str, filters: dict[str, Callable[..., Any]], **shown: Any) -> bytes:
    """A page from its template and its first module; whatever is shown is text unless it is marked as markup."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=FileSystemLoader(ASSETS))
    environment.filters.update(
        duration=format_duration, plural=plural, ranks=name_ranks, spans=spans_text, value=format_value, **filters
    )
    page = environment.get_template(f"{template}.html.j2")
    text = page.render(script=script_of(first), style_sheet=style_sheet(), version=__version__, **shown)
    return harmless(text, colours=False).encode()


def pack(data: Any) -> str:
    """Data as JSON, compressed, as base64: only letters that mean nothing in HTML."""
    return _base64(gzip.compress(harmless_json(data).encode(), compresslevel=6, mtime=0))


def _hash(script: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
