"""Torch's own tests of a backend, run on MPI and on gloo: what passes, fails, is skipped, and why.

    python mpi/torch_battery.py mpi gloo [--ranks 3] [--only PATTERN] [--json]

They are those of `torch.testing._internal.distributed.distributed_test`, which come with torch's wheel. All ranks go
through them in one process each, as long as all goes well; after a failure they are started again with the next one.
What needs a GPU, or another backend, is skipped by the tests themselves.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT_S = 90.0
"""For one test."""
GRACE_S = 8.0
"""How long the others have after a rank has failed."""
START_S = 300.0
NEEDED = ("expecttest", "numpy")
"""By torch's tests, besides torch."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="+", choices=("mpi", "gloo"))
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression for names of tests")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"torch's tests need {' and '.join(missing)}, which its wheel does not bring: pip install them")
    for backend in arguments.backends:
        found = run(backend, arguments.ranks, arguments.only)
        if arguments.json:
            print(json.dumps({backend: found}, indent=1))
        else:
            tell(backend, arguments.ranks, found)
    return 0


def tell(backend: str, ranks: int, found: dict[str, dict[str, str]]) -> None:
    """Print counts, then why what did not pass."""
    counts = collections.Counter(one["outcome"] for one in found.values())
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(f"{backend}, {ranks} ranks: {said} of {len(found)}")
    reasons = collections.Counter(one["why"] for one in found.values() if one["outcome"] == "skipped")
    for why, count in reasons.most_common():
        print(f"  skipped {count:3}: {why}")
    for name, one in found.items():
        if one["outcome"] == "failed":
            print(f"  failed {name}: {one['why']}")


def run(backend: str, ranks: int, only: str) -> dict[str, dict[str, str]]:
    """Every test's outcome."""
    found: dict[str, dict[str, str]] = {}
    first = 0
    with tempfile.TemporaryDirectory() as base:
        while True:
            folder = Path(base, str(first))
            done = _run_from(first, backend, ranks, only, folder)
            found |= done
            first += len(done)
            names = json.loads((folder / "names").read_text())
            if first >= len(names):
                return found


def _run_from(first: int, backend: str, ranks: int, only: str, folder: Path) -> dict[str, dict[str, str]]:
    """Outcomes of the tests from there on, up to and with the first that fails."""
    for name in ("outcomes", "barrier", "test_dir", "init_dir"):
        (folder / name).mkdir(parents=True)
    (folder / "lockfile").touch()
    beside = Path(sys.executable).with_name("mpiexec")
    command = [str(beside) if beside.exists() else "mpiexec", "-n", str(ranks), sys.executable, __file__]
    environment = {
        **os.environ,
        "BACKEND": backend,
        "WORLD_SIZE": str(ranks),
        "TEMP_DIR": str(folder),
        "BATTERY_FIRST": str(first),
        "BATTERY_ONLY": only,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29555",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        return _follow(process, first, ranks, folder)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _follow(process: subprocess.Popen[bytes], first: int, ranks: int, folder: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    end = time.monotonic() + START_S
    while not (folder / "names").exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the ranks did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)
    names = json.loads((folder / "names").read_text())
    for number, name in enumerate(names[first:], first):
        outcomes = _outcomes(process, number, ranks, folder)
        one = next((one for one in outcomes if one["outcome"] == "failed"), outcomes[0])
        found[name] = one
        print(f"{number + 1}/{len(names)} {name}: {one['outcome']} {one['why'][:100]}", file=sys.stderr)
        if one["outcome"] == "failed":
            break
    return found


def _outcomes(process: subprocess.Popen[bytes], number: int, ranks: int, folder: Path) -> list[dict[str, str]]:
    """What became of a test on each rank."""
    end = time.monotonic() + LIMIT_S
    paths = [folder / "outcomes" / f"{number}.{rank}" for rank in range(ranks)]
    while True:
        ended = process.poll() is not None
        there = [json.loads(path.read_text()) for path in paths if path.exists()]
        if len(there) == ranks:
            return there
        if any(one["outcome"] == "failed" for one in there):
            end = min(end, time.monotonic() + GRACE_S)
        if time.monotonic() > end or ended:
            failed = [one for one in there if one["outcome"] == "failed"]
            last = (folder / "log").read_text().strip().splitlines()[-3:]
            why = f"the ranks ended: {' / '.join(last)[:300]}" if ended else f"not over after {LIMIT_S:g} s"
            return failed or [{"outcome": "failed", "why": why}]
        time.sleep(0.02)


# -- what each rank does


def be_a_rank() -> None:
    """Go through the tests from the one that is named, and write what becomes of each."""
    import unittest

    import torch
    import torch.distributed as dist
    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed import distributed_test

    rank, size, folder = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"]), Path(os.environ["TEMP_DIR"])
    torch.set_num_threads(1)
    distributed_test.Barrier.init()

    class Battery(TestCase, distributed_test.DistributedTest._DistTestBase):
        world_size = str(size)
        file_name = str(folder / "rendezvous")

        @property
        def rank(self) -> int:
            return rank

        @property
        def init_method(self) -> str:
            return f"file://{self.file_name}"

    reasons = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}
    only = re.compile(os.environ["BATTERY_ONLY"])
    names = [name for name in unittest.TestLoader().getTestCaseNames(Battery) if only.search(name)]
    if rank == 0:
        (folder / "names.partial").write_text(json.dumps(names))
        (folder / "names.partial").rename(folder / "names")
    if os.environ["BACKEND"] == "mpi":
        dist.init_process_group("mpi")
    else:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    for number in range(int(os.environ["BATTERY_FIRST"]), len(names)):
        one = _try(Battery(names[number]), names[number], reasons)
        partial = folder / "outcomes" / f"{number}.{rank}.partial"
        partial.write_text(json.dumps(one))
        partial.rename(partial.with_suffix(""))
        paths = [folder / "outcomes" / f"{number}.{other}" for other in range(size)]
        while not all(path.exists() for path in paths):
            time.sleep(0.01)
        if any(json.loads(path.read_text())["outcome"] == "failed" for path in paths):
            time.sleep(60)  # to be ended: others may not be where this one is
    dist.destroy_process_group()


def _try(case: Any, name: str, reasons: dict[int, str]) -> dict[str, str]:
    import unittest

    try:
        case.setUp()
        getattr(case, name)()
    except unittest.SkipTest as skipped:
        return {"outcome": "skipped", "why": str(skipped)}
    except SystemExit as left:
        if left.code in reasons:
            return {"outcome": "skipped", "why": reasons[int(left.code or 0)]}
        return {"outcome": "failed" if left.code else "passed", "why": f"sys.exit({left.code})"}
    except BaseException as error:  # noqa: BLE001 - whatever a test raises
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:220]
        why = f"{type(error).__name__}: {said} ({Path(place.filename).name}:{place.lineno})"
        return {"outcome": "failed", "why": why}
    return {"outcome": "passed", "why": ""}


if __name__ == "__main__":
    if "BATTERY_FIRST" in os.environ:
        be_a_rank()
    else:
        sys.exit(main())
