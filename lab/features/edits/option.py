"""`lab run --watch`: run a script again at every save, and show what changed."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.cli.call import Parser
from lab.cli.cmd_run import read_arguments
from lab.cluster import Cluster
from lab.errors import Interrupted, LabError, UsageError
from lab.plan.plan import shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.report.live import LiveOutput
from lab.report.sanitize import sanitize_plain
from lab.report.style import style_for
from lab.report.verdict import verdict_text
from lab.run.cluster_slot import WarmCluster, refuse_foreign_wishes
from lab.run.options import RunOptions
from lab.spec.load import find_scenarios
from lab.spec.scenario import Scenario
from lab.words import format_duration, join_words

_UNFIT = ("chaos", "dry_run", "interactive", "report", "stdin")
"""Options of a single run."""
_MOST_NAMES = 3
_WIDTH = 60
"""Columns of the line between two runs, if the terminal's width is unknown."""


def add_arguments(parser: Parser) -> None:
    """Add `--watch`."""
    about = "run again at every save in the script's folder or of the scenario, and show what changed"
    parser.group("output").add_argument("--watch", action="store_true", help=about)


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Run again and again with `--watch`; return the exit code of the last verdict.

    Raises:
        UsageError: Another option, or several scenarios, make no sense with `--watch`.
    """
    if not arguments.watch:
        return verb(arguments)
    unfit = [name for name in _UNFIT if (value := getattr(arguments, name, None)) is not None and value is not False]
    if unfit:
        option = f"--{unfit[0].replace('_', '-')}"
        raise UsageError(f"--watch runs a script many times, but {option} is for one run", "leave out one of them")
    paths = find_scenarios(arguments.scenarios)
    if len(paths) != 1:
        raise UsageError(f"--watch runs one scenario, not {len(paths)}", "name one")
    arguments.scenarios = paths
    if not paths[0].exists():
        read_arguments(arguments)  # reports it
    loop = _Loop(arguments, paths[0].absolute())
    with loop.cleanup:
        try:
            loop.run()
        except KeyboardInterrupt:
            if sys.stdout.isatty():
                print(file=sys.stderr)  # the terminal shows ^C
        return loop.exit_code


class _Live(LiveOutput):
    """Output of runs that a change of their files interrupts."""

    changes: Sequence[str] = ()
    """The files that changed during the latest run."""
    poll: Callable[[], Sequence[str]]

    def tick(self, elapsed_s: float, running: int, where: Callable[[float, int], str]) -> None:
        super().tick(elapsed_s, running, where)
        if running and not self.changes and (changes := self.poll()):
            self.changes = changes
            self.progress(f"{_names(changes)} changed during the run: stopping it after {format_duration(elapsed_s)}")
            raise KeyboardInterrupt


class _Loop:
    def __init__(self, arguments: argparse.Namespace, path: Path) -> None:
        from lab.features.edits.files import Watched, WatchedFiles

        self.exit_code = Interrupted.exit_code
        """Of the last verdict; during a run, that of an interrupted one."""
        self.cleanup = ExitStack()
        """Removes a cluster that exists only for this loop."""
        self._arguments, self._path, self._style = arguments, path, style_for(sys.stdout)
        self._quiet = arguments.quiet or arguments.json
        self._live = _Live(sys.stdout, sys.stderr, quiet=self._quiet, raw=arguments.raw)
        self._files = WatchedFiles(Watched(path.parent, (path,)))
        self._live.poll = self._files.poll
        shape = shared.shape_arguments(arguments)
        del shape["env"]  # environment of the runs, not of the cluster
        self._cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=self._live.progress, **shape)
        self._own: WarmCluster | None = None
        self._before: Record | None = None

    def run(self) -> None:
        """Run, wait for a change, and so on, until a run is interrupted."""
        changes: Sequence[str] = ()
        while True:
            self.exit_code, self._live.changes = Interrupted.exit_code, ()
            self._files.begin()
            answer: dict[str, Any] = {}
            try:
                result = self._run_once()
                if not self._live.changes:
                    answer = self._report(result)
            except KeyboardInterrupt:
                if not self._live.changes:
                    raise
            except LabError as error:
                self.exit_code = error.exit_code
                answer = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
                if not self._arguments.json:
                    sys.stderr.write(f"lab: {sanitize_plain(str(error))}\n")
            if self._arguments.json and answer:
                print(json.dumps({**answer, "changed_files": changes}), flush=True)
            if self.exit_code == Interrupted.exit_code and not self._live.changes:
                return
            with shared.Progress(quiet=self._quiet or bool(self._live.changes)) as progress:
                progress.announce(f"waiting for changes in {self._files.watched.folder}; Ctrl-C ends")
                changes = self._files.wait()
            if not self._quiet:
                title = f"── {time.strftime('%H:%M:%S')}  {_names(changes)} changed "
                shared.print_sanitized(f"\n{self._style.paint(title.ljust(self._style.width or _WIDTH, '─'), 'bold')}")

    def _run_once(self) -> Result:
        """Run the scenario on the user's cluster, or on one that stays warm until the end of the loop.

        Raises:
            LabError: The run could not begin.
        """
        cluster, live = self._cluster, self._live
        [scenario], options, _ = read_arguments(self._arguments)
        options = replace(options, terminal=not self._quiet)
        self._follow(scenario, options)
        try:
            if options.keep or (self._own is None and cluster.slot.find_fitting() is not None):
                return cluster.run(scenario, observer=live, options=options)
            options = cluster.options_of(scenario, options)
            return self._own_cluster(scenario, options).attempt(scenario, options, live).complete()
        finally:
            live.finish()

    def _own_cluster(self, scenario: Scenario, options: RunOptions) -> WarmCluster:
        slot = self._cluster.slot
        shape = shape_for(scenario, options, slot.asked)
        if self._own is None or self._own.shape != shape:
            refuse_foreign_wishes(scenario, slot.engine, slot.asked, options)
            self._own = None
            self.cleanup.close()
            lock = self._cluster.lock.held(f"lab run --watch {self._path.name}", options.wait_s)
            slot.find_usable(self.cleanup.enter_context(lock))  # removes remains
            self._own = WarmCluster(slot=slot, shape=shape, made_for="watch")
            self.cleanup.callback(self._own.clear)
        return self._own

    def _follow(self, scenario: Scenario, options: RunOptions) -> None:
        """Watch what a scenario uses: what is shipped, the scenario, and files that its text names."""
        named, data = [self._path], {**scenario.data, **self._arguments.data}.values()
        with suppress(OSError, UnicodeDecodeError):
            text = scenario.source.read_text(encoding="utf-8") if scenario.source else ""
            words = (self._path.parent / word for word in re.findall(r"[^\s'\",:\[\]{}]+", text))
            named += filter(os.path.isfile, words)
        own = [Path(os.path.realpath(path)) for path in (options.runs, options.outputs) if path is not None]
        folder = Path(os.path.realpath(scenario.shipped))
        watched = self._files.watched._replace(folder=folder, others=named, data=[*data], own=own)
        self._files.follow(watched._replace(all_files=options.all_files))

    def _report(self, result: Result) -> dict[str, Any]:
        """Print the verdict and what changed; return both as data."""
        lines = list[str]()
        self.exit_code = result.exit_code
        written = [Path(result.outputs_folder or "", one.path) for one in result.outputs]
        written += [self._path.with_name(str(one.expected)) for one in result.expectations if one.what == "snapshot"]
        self._files.accept(written)
        show = (lambda _: None) if self._arguments.json else shared.print_sanitized
        show(verdict_text(result, self._style))
        if result.path is not None and result.exit_code != Interrupted.exit_code:
            before, self._before = self._before, Record(path=result.path)
            if before is not None:
                from lab.features.compare.compare import summarize_changes

                with suppress(LabError):  # a record was removed
                    lines = summarize_changes(before, self._before)
                    shown = [f"  {self._style.paint('changed', 'bold')}: {line}" for line in lines]
                    show("\n".join(shown) or self._style.paint("  no change", "dim"))
        return {**result.to_json(), "changes": lines}


def _names(changes: Sequence[str]) -> str:
    hidden = len(changes) - _MOST_NAMES
    return join_words([*changes[:_MOST_NAMES], f"{hidden} more" if hidden > 0 else ""])
