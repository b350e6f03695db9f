"""Runs three scripts and keeps the terminal's picture of it as docs/run.svg."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 122
RAISES = """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.full((4,), float(dist.get_rank()))
if dist.get_rank() == 1:
    gradient = gradient.reshape(5)
dist.all_reduce(gradient)
"""
HANGS = """import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 2:
    time.sleep(3600)
dist.all_reduce(torch.ones(1))
"""


def main() -> None:
    """Run, record, draw."""
    console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w"), force_terminal=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "average.py").write_text(RAISES)
        (folder / "late.py").write_text(HANGS)
        (folder / "scenarios").symlink_to(ROOT / "scenarios")
        lab(folder, "up", "--nodes", "3", "--quiet")
        try:
            for words in (["scenarios/scatter.yaml"], ["average.py", "-q"], ["late.py", "-q", "--timeout", "2s"]):
                console.print(f"[bold]$ lab run {' '.join(words)}[/]")
                console.print(Text.from_ansi(lab(folder, "run", *words)))
        finally:
            lab(folder, "down")
    svg = console.export_svg(title="lab")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # nothing is fetched to show it
    (ROOT / "docs" / "run.svg").write_text(svg, encoding="utf-8")


def lab(folder: Path, *words: str) -> str:
    """What a command prints, in colour."""
    environment = {**os.environ, "FORCE_COLOR": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lab.cli.main", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


if __name__ == "__main__":
    main()
