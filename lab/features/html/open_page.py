"""Opening a page in the person's browser, where there is one."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path


def open_page(page: Path | str) -> str:
    """Open a file or an address in the browser; returns why it was not opened, or an empty text.

    On Linux without a display Python would take a browser that fills the terminal, which nobody asked for.
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
