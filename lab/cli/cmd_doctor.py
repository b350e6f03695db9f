"""`lab doctor`: check what a run needs, and print how to fix problems."""

from __future__ import annotations

import argparse
from dataclasses import replace

from lab.cli import arguments as shared
from lab.engine.doctor import Check, Wanted, examine_machine
from lab.engine.protocol import Engine, Examiner
from lab.engine.select import select_engine
from lab.errors import EngineUnavailable
from lab.report.style import Style
from lab.run.lock import read_holder

_SIGNS = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "failed": ("✘", "red")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=shared.positive, default=3, help="check memory and cores for this many nodes")
    parser.add_argument("--nproc-per-node", type=shared.positive, default=1, help="workers on each of these nodes")
    shared.add_options(parser, "--engine", help="engine to check (default: what a run would use)")
    parser.add_argument("--image", help="image to check (default: the lab's own)")
    parser.add_argument("--gpus", type=shared.positive, default=0, help="GPUs that each node needs")
    about = "test the GPUs of this machine step by step, up to an all_reduce over nccl"
    parser.add_argument("--gpu", dest="gpu_test", action="store_true", help=about)
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Run the checks; return 1 if one failed, 3 if no engine answers."""
    wanted = Wanted(**shared.field_values(Wanted, arguments))
    if wanted.gpu_test:
        wanted = replace(wanted, gpus=wanted.gpus or 1)
    checks, exit_code = examine_machine(wanted), 0
    try:
        engine, why = select_engine(arguments.engine)
        if why:
            checks.append(Check("warning", "engine", why, "start Docker for real containers"))
        checks += [*(engine.examine(wanted) if isinstance(engine, Examiner) else ()), _leftovers(engine)]
    except EngineUnavailable as error:
        checks.append(Check("failed", "engine", error.message, error.hint))
        exit_code = 3
    if any(check.level == "failed" for check in checks):
        exit_code = exit_code or 1
    data = [check.to_json() for check in checks]
    shared.print_answer(arguments, data, lambda style: "\n".join(_line(check, style) for check in checks))
    return exit_code


def _leftovers(engine: Engine) -> Check:
    """Check for clusters that no process uses or owns any more."""
    unused = (info for info in engine.find() if not info.stays and read_holder(info) is None)
    if left := sorted({*engine.nodeless(), *(info.name for info in unused)}):
        names = ", ".join(left)
        fix = "; ".join(f"lab down --name {name} --engine {engine.name}" for name in left)
        return Check("warning", "leftovers", f"cluster {names} is incomplete or of a dead run", fix)
    return Check("ok", "leftovers", "none")


def _line(check: Check, style: Style) -> str:
    sign, colour = _SIGNS[check.level]
    fix = f"\n    fix: {check.fix}" if check.fix else ""
    return f"{style.paint(f'{sign} {check.level:<7}', colour)} {check.what}: {check.result}{fix}"
