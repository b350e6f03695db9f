"""`lab logs`: what ranks printed, in the order of arrival."""

from __future__ import annotations

import argparse
import json
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Iterable
from datetime import datetime
from typing import BinaryIO

from lab.cli import arguments as shared
from lab.errors import UsageError
from lab.record.read import IndexReader, Piece, Record, read_output
from lab.report.live import LiveOutput
from lab.report.sanitize import sanitize_text
from lab.words import name_attempts, name_nodes

_POLL_S = 0.1
_LONGEST_PART = 1 << 20
"""Bytes of a line that are printed at once."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_record(parser)
    about = "show only this rank, without a prefix; may be repeated"
    parser.add_argument("--rank", type=int, action="append", metavar="N", help=about)
    about = "show only ranks on this node, such as node1"
    shared.add_options(parser, "--node", action="append", metavar="NODE", help=about, complete="nodes")
    parser.add_argument("--launcher", action="store_true", help="show only what the launcher itself printed")
    parser.add_argument("--follow", "-f", action="store_true", help="print new lines until the run ends")
    shared.add_options(parser, "--raw")


def run(arguments: argparse.Namespace) -> int:
    """Print the log: one rank's as it is, several merged with a prefix."""
    record = shared.open_record(arguments)
    if arguments.launcher:
        return _print_launchers(record, arguments)
    workers = record.workers()
    wanted = _wanted(arguments, workers, record) if workers or not arguments.follow else set()
    if arguments.rank and len(arguments.rank) == 1 and not arguments.follow and not arguments.json:
        with record.open_log(arguments.rank[0]) as log:
            _print_one(log, raw=arguments.raw)
        return 0
    live = LiveOutput(sys.stdout, None, raw=arguments.raw, whole=True)
    index, number = IndexReader(), record.number
    earlier = [] if arguments.attempt is not None else [*record.earlier_attempts()]
    if earlier:
        last = name_attempts([record.number])
        sys.stderr.write(f"{last}, the last one; --attempt N shows {name_attempts(earlier)}\n")

    def show_rest(record: Record) -> None:
        pieces = (piece for piece in read_output(record.path, index) if piece.rank in wanted)
        _show(pieces, workers, live, number, arguments.json)

    while True:
        over = not record.in_progress
        while number < record.number:  # the workers were restarted
            show_rest(record.attempt(number))
            live.finish()
            index, number, workers = IndexReader(), number + 1, {}
            sys.stderr.write(f"attempt {number} begins\n")
        if not workers:  # the run is still waiting for its nodes
            workers = record.workers()
            wanted = _wanted(arguments, workers, record) if workers else wanted
        before = index.position
        show_rest(record)
        if not arguments.follow or (over and index.position == before):
            live.finish()
            return 0
        live.flush_due()
        time.sleep(_POLL_S)


def _print_launchers(record: Record, arguments: argparse.Namespace) -> int:
    """Print the output of launcher processes, each line with its node."""
    logs = {node: log for node, log in record.launcher_logs().items() if node in (arguments.node or [node])}
    for node, log in logs.items():
        for line in log.decode("utf-8", "backslashreplace").splitlines():
            if arguments.json:
                print(json.dumps({"node": node, "text": line}))
            else:
                print(f"{node} | {line if arguments.raw else sanitize_text(line)}")
    if not logs:
        sys.stderr.write(f"no launcher of {record.run} printed anything\n")
    return 0


def _print_one(log: BinaryIO, *, raw: bool) -> None:
    """Print a log line by line, and a long line in parts, so that memory use is limited."""
    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    while line := log.readline(_LONGEST_PART):
        sys.stdout.buffer.write(line if raw else sanitize_text(decoder.decode(line), output=True).encode())
    if not raw:
        sys.stdout.buffer.write(sanitize_text(decoder.decode(b"", final=True), output=True).encode())
    sys.stdout.flush()


def _wanted(arguments: argparse.Namespace, workers: dict[int, str], record: Record) -> set[int]:
    ranks, nodes = arguments.rank or [*workers, -1], arguments.node
    for rank in arguments.rank or ():
        record.open_log(rank).close()  # raises for an unknown rank
    for node in nodes or ():
        if node not in workers.values():
            raise UsageError(f"run {record.run} has no node {node!r}", f"allowed: {name_nodes(workers.values())}")
    return {rank for rank in ranks if not nodes or workers.get(rank) in nodes}


def _show(pieces: Iterable[Piece], workers: dict[int, str], live: LiveOutput, attempt: int, as_json: bool) -> None:
    for piece in pieces:
        node = workers.get(piece.rank, "node0")
        if not as_json:
            live.output(piece.rank, node, piece.stream, piece.data, piece.time)
            continue
        data = {
            "rank": piece.rank,
            "node": node,
            "attempt": attempt,
            "stream": {1: "stdout", 2: "stderr", 3: "terminal"}.get(piece.stream, piece.stream),
            "time": datetime.fromtimestamp(piece.time).astimezone().isoformat(),
            "text": piece.data.decode("utf-8", "backslashreplace"),
        }
        print(json.dumps(data))
