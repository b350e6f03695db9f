"""`lab watch`: a run as it happens: what every rank does now, and who waits for whom."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cli import arguments as shared
from lab.cli.arguments import say
from lab.cluster import Cluster
from lab.errors import Interrupted, RecordError, UsageError
from lab.features.html.write import open_page
from lab.features.watch.session import Keys, Lines, Screen, Session, Show, Stepper, Watched
from lab.record.read import Record, find_record, list_records
from lab.record.result import Result
from lab.report.live import LiveOutput
from lab.report.style import style_for
from lab.report.verdict import verdict_text
from lab.run.collect import Observer
from lab.run.options import RunOptions
from lab.spec.load import SIGN, open_scenario

if TYPE_CHECKING:
    from lab.features.watch.server import Server

_SOON_S, _LATE_S = 0.4, 1.5
"""So late traces may come of a run that is watched from its start, and of one that somebody else has started."""
_SEEN_S = 5.0
"""So long browsers have to take the end of a run that nobody sits before."""
LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab watch [SCENARIO.yaml | SCRIPT.py | @LESSON | RUN] [options] [-- SCRIPT ARGUMENTS]"
    parser.epilog = (
        "A scenario or script is run and watched. The name of a run, or of its folder, watches one that somebody else "
        "has started; without any name, the latest that goes on. In a pipe: a line for everything that happens."
    )
    named = parser.add_argument("what", nargs="?", help="what to run and watch, or a run that goes on")
    shared.completes(named, "scenarios")
    parser.set_defaults(rest=[])
    parser.add_argument(
        "--step", action="store_true", help="hold every rank before each call until a key is pressed; c: run on"
    )
    parser.add_argument("--web", action="store_true", help="show it on a page too, for a projector or a phone")
    parser.add_argument("--open", action="store_true", help="open that page in the browser")
    parser.add_argument("--port", type=shared.whole, default=0, help="port of the page (default: any that is free)")
    parser.add_argument(
        "--host", default=LOOPBACK, help=f"address of the page (default: {LOOPBACK}, which only this machine can reach)"
    )
    shared.add_size(parser)
    shared.add_conduct(parser)
    shared.add_trace_values(parser)
    shared.add_cluster(parser)
    shared.add_shape(parser)
    shared.add_wait(parser)
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Watch it to its end; the exit code is that of the verdict."""
    what = arguments.what
    if what is not None and (what.startswith(SIGN) or Path(what).suffix in (".yaml", ".yml", ".py")):
        return _run_and_watch(arguments)
    if arguments.step:
        raise UsageError("--step needs a run of its own", "lab watch SCENARIO --step")
    try:
        record = _goes_on(arguments) if what is None else find_record(what, arguments.runs)
    except RecordError as error:
        how = "name a run of `lab runs`, or what to run: a scenario's file, a script, a lesson as @NAME"
        raise RecordError(error.message, error.hint if what is None else how) from error
    with _page(arguments, record.plan().scenario or record.run, lambda: record.path) as page:
        Session(lambda: record.path, [*_shows(arguments, _LATE_S), *page]).follow()
        result = record.result()
        _tell(result, arguments)
        _stay(page, result)
    return result.exit_code


def _goes_on(arguments: argparse.Namespace) -> Record:
    """The latest run that goes on, on the cluster that was named."""
    name = arguments.name
    for record in reversed(list_records(arguments.runs)):
        if record.in_progress and name in (None, record.readable_plan().cluster):
            return record
    where = f"on cluster {name} " if name else ""
    raise RecordError(
        f"no run {where}is going on in {arguments.runs}",
        "start one with `lab watch SCENARIO`, or name one of `lab runs`",
    )


class _Progress(Observer):
    """Says what is being done before the run and after it; in between the view says that."""

    def __init__(self, watched: Watched, ended: threading.Event, *, quiet: bool) -> None:
        self._live = LiveOutput(sys.stderr, sys.stderr, quiet=quiet, lines=False)
        self._watched, self._ended = watched, ended

    def progress(self, text: str) -> None:
        if self._watched.path is None or self._ended.is_set():
            self._live.progress(text)


def _run_and_watch(arguments: argparse.Namespace) -> int:
    shape = shared.shape_arguments(arguments)
    env = shape.pop("env")
    scenario = open_scenario(Path(arguments.what))
    scenario = replace(scenario, args=(*scenario.args, *arguments.rest), env={**scenario.env, **env})
    if arguments.step and not scenario.trace.on:
        raise UsageError(f"{scenario.name} is not recorded, so nobody can hold its calls", "take `trace: false` out")
    watched, ended = Watched(step=arguments.step), threading.Event()
    stepper = Stepper(watched) if arguments.step else None
    progress = _Progress(watched, ended, quiet=arguments.json)
    options = replace(RunOptions(**shared.fields_said(RunOptions, arguments)), companions=(watched,))
    cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=progress.progress, **shape)
    with _page(arguments, scenario.name, lambda: watched.path, stepper) as page, Keys(sys.stdin, stepper) as keys:
        session = Session(lambda: watched.path, [*_shows(arguments, _SOON_S), *page], stepper, keys)
        with ThreadPoolExecutor(1, "watch") as pool:
            watching = pool.submit(session.follow, ended)
            try:
                result = cluster.run(scenario, observer=progress, options=options)
            finally:
                ended.set()
        _tell(result, arguments)
        watching.result()  # what went wrong there, if anything did
        _stay(page, result)
    return result.exit_code


def _shows(arguments: argparse.Namespace, late_s: float) -> list[Show]:
    if arguments.json or not sys.stdout.isatty():
        return [Lines(sys.stdout, as_json=arguments.json, late_s=late_s)]
    return [Screen(sys.stdout)]


def _tell(result: Result, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps({"event": "verdict", **result.to_json()}), flush=True)
    else:
        say(verdict_text(result, style_for(sys.stdout)))


@contextmanager
def _page(
    arguments: argparse.Namespace, title: str, path: Callable[[], Path | None], stepper: Stepper | None = None
) -> Iterator[list[Server]]:
    """The server of the page, if that is asked for."""
    if not (arguments.web or arguments.open):
        yield []
        return
    from lab.features.watch.server import Server, page_of, report_of

    try:
        server = Server(
            page_of(title), host=arguments.host, port=arguments.port, stepper=stepper, report=report_of(path)
        )
    except (OSError, OverflowError) as error:
        wanted = f"{arguments.host} port {arguments.port}" if arguments.port else arguments.host
        raise UsageError(f"cannot serve the page at {wanted}: {error}", "choose another --port or --host") from error
    if not server.private:
        sys.stderr.write(
            "warning: whoever reaches this machine and knows the address can see the run"
            f"{' and let it go on' if stepper else ''}; elsewhere it has this machine's name or address in it\n"
        )
    why_not = open_page(server.url) if arguments.open else ""
    sys.stderr.write(f"  page: {server.url}{f' ({why_not})' if why_not else ''}\n")
    sys.stderr.flush()
    try:
        yield [server]
    finally:
        server.stop()


def _stay(page: Sequence[Server], result: Result) -> None:
    """The page outlives the run until whoever sits before the terminal ends it."""
    if not page or result.exit_code == Interrupted.exit_code:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        sys.stderr.write("  the page stays until Ctrl-C\n")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    else:
        page[0].wait_until_seen(_SEEN_S)
