"""Fill a page's template with its own files, write it atomically, and open it in the browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import sys
import webbrowser
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from lab import __version__
from lab.errors import RecordError
from lab.record.record_files import write_file
from lab.report.sanitize import sanitize_json, sanitize_text
from lab.report.style import spans_text
from lab.words import format_count, format_duration, format_value, name_ranks

ASSETS = Path(__file__).parent / "assets"
_STYLES = ("base", "verdict", "steps", "timeline", "tables", "lines", "files", "present", "media")
"""The order matters: later style sheets override earlier ones."""
_IMPORT = re.compile(r'from "lab/(\w+)"')


@lru_cache
def build_scripts(module: str) -> dict[str, str]:
    """Return the scripts of a page that begins with `start` of a module.

    Returns:
        `import_map`: the modules, as JSON. `start`: the only script that is not a module: it imports the first of them.
        `policy`: the content security policy: nothing from any network, and no script but the page's own.
    """
    texts: dict[str, str] = {}
    queue = [module]
    while queue:
        if (name := queue.pop()) not in texts:
            texts[name] = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
            queue += _IMPORT.findall(texts[name])
    sources = {name: f"{text}\n//# sourceURL=lab/{name}.js\n" for name, text in sorted(texts.items())}
    modules = {f"lab/{name}": f"data:text/javascript;base64,{_base64(text.encode())}" for name, text in sources.items()}
    import_map, start = json.dumps({"imports": modules}), f'import {{ start }} from "lab/{module}"; start();'
    hashes = (f"'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'" for script in (import_map, start))
    allowed = f"script-src {' '.join(hashes)} data:; style-src 'unsafe-inline'; img-src data:"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return {"start": start, "import_map": import_map, "policy": policy}


@lru_cache(maxsize=1)
def style_sheet() -> str:
    """Return all style sheets as one."""
    return "".join((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)


@lru_cache
def _environment(_template: str) -> Environment:
    """Return the environment of a template, which keeps it compiled: that takes longer than to fill it in."""
    environment = Environment(autoescape=True, loader=FileSystemLoader(ASSETS), trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(duration=format_duration, plural=format_count, ranks=name_ranks)
    environment.filters.update(spans=spans_text, value=format_value)
    return environment


def fill_template(template: str, filters: Mapping[str, Callable[..., Any]], **shown: Any) -> str:
    """Render a template with its own filters, which are always the same; values are text unless they are `Markup`."""
    environment = _environment(template)
    environment.filters.update(filters)
    return sanitize_text(environment.get_template(f"{template}.j2").render(**shown), colours=False)


def render_page(template: str, module: str, filters: Mapping[str, Callable[..., Any]], **shown: Any) -> bytes:
    """Render a page from its template and its first module."""
    common = {"script": build_scripts(module), "style_sheet": style_sheet(), "version": __version__}
    return fill_template(f"{template}.html", filters, **common, **shown).encode()


def compress_data(data: Any) -> str:
    """Return data as compressed JSON in base64, whose characters have no meaning in HTML."""
    return _base64(gzip.compress(sanitize_json(data).encode(), compresslevel=6, mtime=0))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def write_page(page: bytes, path: Path) -> None:
    """Write a page.

    Args:
        page: the bytes of the page.
        path: the file to write.

    Raises:
        RecordError: the file cannot be written.
    """
    with RecordError.on_os_error(f"cannot write the report {path}", "choose another file with --out"):
        write_file(path.parent, path.name, page, make_folders=False)


def open_page(page: Path | str) -> str:
    """Open a file or an address in the browser; return why it was not opened, or an empty text.

    On Linux without a display Python would start a text browser, which takes over the terminal.
    """
    chosen = os.environ.get("BROWSER")
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not (chosen or display):
        return "not opened: this machine has no display"
    try:
        opened = webbrowser.open(page if isinstance(page, str) else page.resolve().as_uri())
    except webbrowser.Error:
        opened = False
    return "" if opened else "not opened: no browser was found"
