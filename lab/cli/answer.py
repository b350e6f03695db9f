"""What a verb answers: text for a person, or with `--json` data."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.report.harmless import harmless
from lab.report.style import Style, style_for


def answer(arguments: argparse.Namespace, data: Callable[[], Any], text: Callable[[Style], str]) -> int:
    """Print the one that was asked for; returns the exit code 0."""
    if arguments.json:
        print(json.dumps(data()))
    else:
        say(text(style_for(sys.stdout)))
    return 0


def say(text: str) -> None:
    """Print text, parts of which may come from scripts."""
    print(harmless(text), flush=True)


def write_text(path: Path, text: str) -> None:
    """Write a file that was asked for.

    Raises:
        LabError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}") from error
