"""How long the HTML report of a large run takes, how large it is, and how soon a browser shows it.

    .venv/bin/python bench/report.py [--calls 50000] [--world-size 4] [--json]

Makes a record with a given number of calls (each is two events: it begins, it ends), writes the report as `lab report`
does, in a process of its own, and opens it in Chromium. Medians of three; the browser's part is left out where there is
none.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser.runs import long_training

LAB = Path(sys.executable).with_name("lab")
ROUNDS = 3
_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[50_000, 100_000], help="calls of all ranks together")
    parser.add_argument("--world-size", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    rows = [measure(calls, arguments.world_size) for calls in arguments.calls]
    if arguments.json:
        print(json.dumps(rows))
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        print(f"{name:<44}" + "".join(f"{row.get(name, '-'):>12}" for row in rows))


def measure(calls: int, world_size: int) -> dict[str, Any]:
    """The figures of a run with this many calls."""
    with tempfile.TemporaryDirectory() as folder:
        record = long_training(Path(folder) / "run", calls, world_size)
        page = Path(folder) / "report.html"
        took, computed = [], []
        for _ in range(ROUNDS):
            began, before = time.perf_counter(), _children_cpu_s()
            subprocess.run([LAB, "report", record.path, "--out", page], check=True, capture_output=True)
            took.append(time.perf_counter() - began)
            computed.append(_children_cpu_s() - before)
        row = {
            "calls": calls,
            "events in the trace": 2 * calls,
            "report made, s": round(statistics.median(took), 2),
            "of that computing, s": round(statistics.median(computed), 2),
            "report, MB": round(page.stat().st_size / 1e6, 2),
        }
        return {**row, **browse(page)}


def _children_cpu_s() -> float:
    """Seconds that ended children have computed; on a busy machine less than they took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def browse(page: Path) -> dict[str, Any]:
    """What Chromium needs: until the page answers, and for one frame while zooming in, stepping and searching."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return {}
    from playwright.sync_api import sync_playwright

    ready, zooming, stepping, searching = [], [], [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(ROUNDS):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            began = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]")
            ready.append(time.perf_counter() - began)
            zooming.append(frames(tab, "=", 10))
            stepping.append(frames(tab, "ArrowRight", 10))
            tab.locator("#step-text").focus()
            searching.append(frames(tab, "1", 4))
            tab.close()
        browser.close()
    return {
        "page interactive, s": round(statistics.median(ready), 2),
        "a zoom to the next frame but one, ms": round(statistics.median(zooming) * 1e3),
        "a step to the next frame but one, ms": round(statistics.median(stepping) * 1e3),
        "a letter to search to the same, ms": round(statistics.median(searching) * 1e3),
    }


def frames(tab: Any, key: str, times: int) -> float:
    """Median seconds from a key to the second frame after it."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        tab.keyboard.press(key)
        tab.evaluate(_FRAME)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    main()
