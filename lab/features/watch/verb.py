"""`lab watch`: show a run in progress in a terminal, in a pipe, or on a page, step by step on key presses.

Run and watch a scenario or script, or watch a run that another command started: name the run or its folder. Without a
name, watch the latest run in progress. In a pipe, print a line for each event.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import sys
import termios
import threading
import time
import tty
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from rich.cells import cell_len

from lab.cli import arguments as shared
from lab.cluster import Cluster
from lab.errors import Interrupted, RecordError, UsageError
from lab.features.html.write import open_page
from lab.features.pictures.model import picture_of
from lab.features.pictures.text import picture_text
from lab.features.watch.now import LOOPBACK, Follower, Happening, Now, RankNow, Watched, group_ranks
from lab.record.read import Record, find_record, list_records
from lab.record.result import Result
from lab.report.live import Bottom, LiveOutput, fit_columns
from lab.report.sanitize import sanitize_text
from lab.report.style import MANY, Style, group_by_kind, style_for
from lab.report.verdict import verdict_text
from lab.run.collect import Observer
from lab.run.options import RunOptions
from lab.spec.load import SIGN
from lab.words import format_duration, name_nodes, name_ranks

if TYPE_CHECKING:
    from lab.features.watch.server import Server
    from lab.trace.steps import Step


class Keys:
    """Reads each key as it is pressed, without Enter, until the block ends; Ctrl-C still interrupts.

    Args:
        stream: A terminal, or a pipe.
        is_used: Whether keys have a function; otherwise the terminal is not changed.
    """

    def __init__(self, stream: IO[str], is_used: object = True) -> None:
        self.descriptors: list[int] = []
        """Descriptors that are readable when a key was pressed; empty if no key can come any more."""
        self._saved: tuple[int, list[Any]] | None = None
        """A terminal, and its settings before."""
        with suppress(OSError, ValueError, AttributeError):  # closed, or not a file
            fd = stream.fileno()
            if is_used and not (os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp()):
                self.descriptors = [fd]  # in the background, reading would stop this process

    def __enter__(self) -> Keys:
        for fd in filter(os.isatty, self.descriptors):
            self._saved = fd, termios.tcgetattr(fd)
            tty.setcbreak(fd, termios.TCSADRAIN)
        return self

    def __exit__(self, *_: object) -> None:
        if self._saved is not None:
            termios.tcsetattr(self._saved[0], termios.TCSADRAIN, self._saved[1])

    def read(self) -> str:
        """Return the keys that were pressed; call it only if a descriptor is readable."""
        data = b""
        with suppress(OSError):
            data = os.read(self.descriptors[0], 64)
        if not data:
            self.descriptors = []
        return data.decode("utf-8", "replace")


_POLL_S = 0.1
RUN_ON_KEY = "c"


class Show(Protocol):
    """A view of a run."""

    def show(self, now: Now, follower: Follower) -> None:
        """Show the state of the run; return quickly."""

    def close(self) -> None:
        """Show no further states."""


def follow_run(
    path: Callable[[], Path | None],
    shows: Sequence[Show],
    stepper: Watched | None = None,
    keys: Keys | None = None,
    ended: threading.Event | None = None,
) -> None:
    """Watch one run until it is over.

    Args:
        path: Returns the record of the run; None while it has none. It may change.
        shows: The views.
        stepper: Releases held ranks.
        keys: The keys of a terminal; when they end and there is no page, all ranks are released.
        ended: Set when the run is over and completely recorded; None: the record shows that.
    """
    follower: Follower | None = None
    now: Now | None = None

    def show_now(follower: Follower) -> None:
        if now is not None:
            for show in shows:
                show.show(now, follower)

    with ExitStack() as stack:
        if stepper is not None:  # nothing else would release its ranks
            stack.callback(stepper.run_on)
        for show in shows:
            stack.callback(show.close)
        while True:
            last, is_behind = ended is not None and ended.is_set(), False
            if (folder := path()) is not None and (follower is None or follower.record.path != folder):
                follower = Follower(Record(path=folder), stepping=stepper is not None)
            while follower is not None and follower.attempt < follower.record.number:  # workers were restarted
                next_follower = follower.follow_next_attempt()
                show_now(follower)  # the rest of the previous attempt
                if stepper is not None:
                    stepper.restart()
                follower = next_follower
            if follower is not None:
                now, is_behind = follower.poll(time.time())
                now = now if stepper is None else stepper.update(now, follower)
                show_now(follower)
                last = last if ended is not None else now.over
            if last and not is_behind:
                break
            if not is_behind:
                _pause(stepper, keys, alone=all(isinstance(show, (Lines, Screen)) for show in shows))
        if follower is not None:
            follower.finish()
            if follower.happened:
                show_now(follower)


def _pause(stepper: Watched | None, keys: Keys | None, *, alone: bool) -> None:
    """Wait a moment, or until a key is pressed; if only keys release ranks, release all of them when keys end."""
    ready, _, _ = select.select(keys.descriptors if keys else [], [], [], _POLL_S)
    if keys is None or stepper is None:
        return
    if alone and not keys.descriptors:
        stepper.run_on()
    for key in keys.read() if ready else "":
        if key == RUN_ON_KEY:
            stepper.run_on()
        else:
            stepper.press()


class Lines:
    """Writes the events of a run, one per line.

    Args:
        stream: The output.
        as_json: Whether each line is a JSON object.
        late_s: Maximum delay between the events of two ranks; lines are held back as long, so that they are in order.
    """

    def __init__(self, stream: IO[str], *, as_json: bool, late_s: float) -> None:
        self._stream, self._as_json, self._late_s = stream, as_json, late_s
        self._held: list[Happening] = []

    def show(self, now: Now, follower: Follower) -> None:
        """Write the events."""
        self._held = sorted([*self._held, *follower.happened], key=attrgetter("time_s"))
        if now.elapsed_s is not None:
            self._write(bisect_right(self._held, now.elapsed_s - self._late_s, key=attrgetter("time_s")))

    def close(self) -> None:
        """Write the rest."""
        self._write(len(self._held))

    def _write(self, count: int) -> None:
        due = self._held[:count]
        if self._as_json:
            for one in due:
                facts = {"time_s": round(one.time_s, 6), "event": one.what, "rank": one.rank, "text": one.text}
                self._stream.write(f"{json.dumps({**facts, **one.facts})}\n")
        else:
            lines = _render_lines(due, Style(colour=False))
            self._stream.writelines(f"{time_s:10.3f}  {line}\n" for time_s, line in lines)
        self._stream.flush()
        del self._held[:count]


def _render_lines(happened: Sequence[Happening], style: Style) -> Iterator[tuple[float, str]]:
    """Yield the time and a line for each event; events that many ranks share take one line."""
    limit = len(happened) if len({one.rank for one in happened}) <= MANY else 0
    for group in group_by_kind(happened, lambda one: (one.rank is None, one.what, one.text), limit):
        one, ranks = group[0], {each.rank for each in group if each.rank is not None}
        who = "" if not ranks else "check" if min(ranks) < 0 else name_ranks(ranks)
        text = sanitize_text(f"| {one.text}" if one.what == "output" else one.text)
        name = style.rank(max([0, *ranks]), f"{who:<8}")
        yield one.time_s, f"{name} {text if one.what == 'output' else style.paint(text, 'dim')}"


_WIDE = 72
"""Columns from which on the names of nodes fit."""
_STAYS = ("output", "note", "node", "attempt", "timed out")
Part = tuple[str, tuple[str, ...]]


def now_lines(now: Now, style: Style, height: int) -> list[str]:
    """Render the state of a run in at most `height` lines, none wider than the terminal."""
    width = style.width or 1_000
    elapsed = "" if now.elapsed_s is None else f"  {format_duration(round(now.elapsed_s, 1))}"
    head: list[Part] = [(now.scenario, ("bold",)), (elapsed, ()), (f"  {now.engine}", ("dim",))]
    lines = [_fit_parts(head, width, style)]
    max_rows = max(1, height - 1 - len(now.remarks) - now.stepping)
    groups = group_ranks(now.ranks, min(max_rows, MANY))
    shown = groups if len(groups) <= max_rows else groups[: max_rows - 1]
    named = [(f"{name_ranks(r.rank for r in group):<8}", name_nodes(r.node for r in group)) for group in shown]
    names = max((len(nodes) for _, nodes in named), default=0) if width >= _WIDE else 0
    for group, (name, nodes) in zip(shown, named, strict=True):
        parts = _rank_parts(group, name, f" {nodes:<{names}} " if names else "")
        lines.append(_fit_parts(parts, width, style, group[0].rank))
    if len(shown) < len(groups):
        left = [rank for group in groups[len(shown) :] for rank in group]
        states = ", ".join(f"{count} {state}" for state, count in Counter(rank.activity for rank in left).items())
        lines.append(_fit_parts([(f"… and {len(left)} more: {states}", ("dim",))], width, style))
    lines += [_fit_parts([(remark, ("yellow",))], width, style) for remark in now.remarks]
    if now.stepping and not now.over:
        keys = f"space: {now.next}   c: continue" if now.next else "no rank is held   c: continue"
        lines.append(_fit_parts([(keys, ("cyan", "bold") if now.next else ("dim",))], width, style))
    return lines[:height]


def _rank_parts(ranks: Sequence[RankNow], who: str, nodes: str) -> list[Part]:
    rank = ranks[0]
    styles = ("red",) if rank.bad else ("dim",) if rank.state in ("ended", "starting", "outside") else ()
    parts: list[Part] = [(who, ("rank",)), (nodes, ("dim",)), (rank.activity, styles)]
    if (longest_s := max((one.since_s for one in ranks if one.since_s is not None), default=0.0)) >= 0.1:
        parts.append((f"  {format_duration(round(longest_s, 1))}", ()))
    if rank.waits_for:
        parts.append((f"  waits for {name_ranks(rank.waits_for)}", ("yellow",)))
    if rank.location:
        parts.append((f"  {rank.location}", ("dim",)))
    return parts


def _fit_parts(parts: Iterable[Part], width: int, style: Style, rank: int = 0) -> str:
    """Join parts, and cut them off at the end of the line."""
    pieces = []
    left = width - 1
    for text, styles in parts:
        cut = fit_columns(sanitize_text(text).replace("\n", " "), left) if left > 0 else ""
        left -= cell_len(cut)
        if cut:
            pieces.append(style.rank(rank, cut) if styles == ("rank",) else style.paint(cut, *styles))
    return "".join(pieces)


class Screen:
    """Shows a run in a terminal; if it is stepped, with pictures of the next step and of each completed one."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._bottom = stream, Bottom(stream)
        self._drawn: set[object] = set()

    def show(self, now: Now, follower: Follower) -> None:
        """Redraw the run."""
        style = style_for(self._stream)
        stays = [*self._draw_completed(now, follower, style)]
        happened = [  # stays visible: what ranks print and note, and how they end
            one
            for one in follower.happened
            if one.what in _STAYS or (one.what == "exited" and one.facts.get("code") != 0)
        ]
        stays += [line for _, line in _render_lines(happened, style)]
        if stays:
            self._bottom.wipe()
            self._stream.writelines(f"{line}\n" for line in stays)
        height = shutil.get_terminal_size().lines - 1
        lines = [] if now.over else now_lines(now, style, height)
        pictures = [_draw_step(step, now, style) for step in follower.ahead if step.title in now.next_steps[:1]]
        above = [line for picture in pictures for line in picture.splitlines()]
        self._bottom.show([*above, *lines] if len(above) + len(lines) <= height else lines)

    def _draw_completed(self, now: Now, follower: Follower, style: Style) -> Iterator[str]:
        """Draw the steps that completed since the last time."""
        for step in follower.steps if now.stepping else ():
            key = follower.attempt, *min((call.rank, call.index) for call in step.calls.values())
            if step.end is not None and key not in self._drawn:
                self._drawn.add(key)
                yield _draw_step(step, now, style) + "\n"

    def close(self) -> None:
        """Restore the terminal, without the lines of the ranks."""
        self._bottom.wipe()


def _draw_step(step: Step, now: Now, style: Style) -> str:
    picture = picture_of(step, world_size=len(now.ranks), live=not now.over)
    return sanitize_text(picture_text(picture, style._replace(width=style.width and style.width - 1)))


_SOON_S, _LATE_S = 0.4, 1.5
"""Maximum delay of traces, in seconds: of a run that this command starts, and of any other run."""
_DELIVERY_S = 5.0
"""Seconds that browsers have to receive the end of a run without a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab watch [SCENARIO.yaml | SCRIPT.py | @LESSON | RUN] [options] [-- SCRIPT ARGUMENTS]"
    about = "a scenario or script to run and watch, or a run in progress"
    shared.add_options(parser, "what", nargs="?", help=about, complete="scenarios")
    parser.set_defaults(rest=[])
    about = "hold every rank before each call until you press a key; c stops holding"
    parser.add_argument("--step", action="store_true", help=about)
    parser.add_argument("--web", action="store_true", help="also show the run on a page, for a projector or a phone")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--port", type=shared.whole, default=0, help="port of the page (default: any that is free)")
    about = f"address of the page (default: {LOOPBACK}, which only this machine can reach)"
    parser.add_argument("--host", default=LOOPBACK, help=about)
    shared.add_options(parser, "--nodes", "--nproc-per-node", "--cold", "--timeout", "--trace-values", "--name")
    shared.add_options(parser, "--engine", *shared.SHAPE, "--wait", "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Watch a run to its end; return the exit code of the verdict."""
    what = arguments.what
    if what is not None and (what.startswith(SIGN) or Path(what).suffix in (".yaml", ".yml", ".py")):
        return _run_and_watch(arguments)
    if arguments.step:
        raise UsageError("--step needs a scenario or script, not a run in progress", "lab watch SCENARIO --step")
    try:
        record = _find_run_in_progress(arguments) if what is None else find_record(what, arguments.runs)
    except RecordError as error:
        how = "name a run of `lab runs`, or what to run: a scenario's file, a script, a lesson as @NAME"
        raise type(error)(error.message, error.hint if what is None else how) from error
    with _serve_page(arguments, record.plan().scenario or record.run, lambda: record.path) as page:
        follow_run(lambda: record.path, [*_make_shows(arguments, _LATE_S), *page])
        result = record.result()
        _print_verdict(result, arguments, page)
    return result.exit_code


def _find_run_in_progress(arguments: argparse.Namespace) -> Record:
    """Return the latest run in progress on the named cluster, or on any."""
    name = arguments.name
    for record in reversed(list_records(arguments.runs)):
        if record.in_progress and name in (None, record.readable_plan().cluster):
            return record
    message = f"no run {f'on cluster {name} ' if name else ''}is in progress in {arguments.runs}"
    raise RecordError(message, "start one with `lab watch SCENARIO`, or name one of `lab runs`")


class _Progress(Observer):
    """Prints progress before and after the run; in between the view shows it."""

    def __init__(self, watched: Watched, ended: threading.Event, *, quiet: bool) -> None:
        self._live = LiveOutput(sys.stderr, sys.stderr, quiet=quiet, lines=False)
        self._watched, self._ended = watched, ended

    def progress(self, text: str) -> None:
        if self._watched.path is None or self._ended.is_set():
            self._live.progress(text)


def _run_and_watch(arguments: argparse.Namespace) -> int:
    shape = shared.shape_arguments(arguments)
    env = shape.pop("env")
    [scenario] = shared.named_scenarios([Path(arguments.what)], arguments.rest, env)
    if arguments.step and not scenario.trace.on:
        raise UsageError(f"{scenario.name} is not recorded, so --step cannot hold its calls", "remove `trace: false`")
    watched, ended = Watched(step=arguments.step), threading.Event()
    stepper = watched if arguments.step else None
    progress = _Progress(watched, ended, quiet=arguments.json)
    options = replace(RunOptions(**shared.field_values(RunOptions, arguments)), companions=(watched,))
    cluster = Cluster(name=arguments.name, engine=arguments.engine, announce=progress.progress, **shape)
    with _serve_page(arguments, scenario.name, lambda: watched.path, stepper) as page, Keys(sys.stdin, stepper) as keys:
        shows = [*_make_shows(arguments, _SOON_S), *page]
        with ThreadPoolExecutor(1, "watch") as pool:
            watching = pool.submit(follow_run, lambda: watched.path, shows, stepper, keys, ended)
            try:
                result = cluster.run(scenario, observer=progress, options=options)
            finally:
                ended.set()
        _print_verdict(result, arguments, page)
        watching.result()  # raises an error of that thread
    return result.exit_code


def _make_shows(arguments: argparse.Namespace, late_s: float) -> list[Show]:
    if arguments.json or not sys.stdout.isatty():
        return [Lines(sys.stdout, as_json=arguments.json, late_s=late_s)]
    return [Screen(sys.stdout)]


@contextmanager
def _serve_page(
    arguments: argparse.Namespace, title: str, path: Callable[[], Path | None], stepper: Watched | None = None
) -> Iterator[list[Server]]:
    """Serve the page if `--web` or `--open` was given."""
    if not (arguments.web or arguments.open):
        yield []
        return
    from lab.features.watch.server import Server, page_of, report_of

    try:
        server = Server(page_of(title), arguments.host, arguments.port, stepper=stepper, report=report_of(path))
    except (OSError, OverflowError) as error:
        address = f"{arguments.host} port {arguments.port}" if arguments.port else arguments.host
        raise UsageError(f"cannot serve the page at {address}: {error}", "choose another --port or --host") from error
    if not server.private:
        sys.stderr.write(
            "warning: anyone who reaches this machine and knows the page's address can see the run"
            f"{' and continue held ranks' if stepper else ''}. Elsewhere, use this machine's name in the address.\n"
        )
    problem = open_page(server.url) if arguments.open else ""
    sys.stderr.write(f"  page: {server.url}{f' ({problem})' if problem else ''}\n")
    sys.stderr.flush()
    try:
        yield [server]
    finally:
        server.stop()


def _print_verdict(result: Result, arguments: argparse.Namespace, page: Sequence[Server]) -> None:
    """Print the verdict; with a terminal, the page stays until Ctrl-C."""
    if arguments.json:
        print(json.dumps({"event": "verdict", **result.to_json()}), flush=True)
    else:
        shared.print_sanitized(verdict_text(result, style_for(sys.stdout)))
    if not page or result.exit_code == Interrupted.exit_code:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        sys.stderr.write("  the page stays until Ctrl-C\n")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    else:
        page[0].wait_until_delivered(_DELIVERY_S)
