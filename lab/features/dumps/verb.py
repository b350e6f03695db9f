"""`lab import`: make a record of a job that the lab did not run, from its dumps or from partial records.

Examples:
  lab import fr /tmp/dumps                   a record of the job, with the cause of its hang
  lab import fr --scenario hang /tmp/dumps   also write and run hang/scenario.yaml, which hangs in the same way
  lab import records /tmp/records            one record and verdict, from what `lab record` left on each machine
  lab explain                                explain that record
  lab report --open                          the same as a page

Copy the dumps of all machines into one folder or tar; each file name ends in the number of its rank. `lab help dumps`
says how a job writes them. The lab runs nothing in them: it refuses a file that is more than plain data.

exit codes: 0, or 1 if the scenario does not hang as the job did; 2 refused.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from lab.cli import arguments as shared
from lab.cluster import Cluster
from lab.diagnosis.evidence import read_evidence
from lab.errors import UsageError
from lab.features.dumps.dump import DEFAULT, LARGE, Dumps
from lab.features.dumps.record import Calls, import_dumps
from lab.features.dumps.reproduce import SCENARIO, SCRIPT, Replica, find_differences, make_replica
from lab.features.recording.world import import_worlds
from lab.record.events import Dumped
from lab.record.read import Record
from lab.report.style import Style
from lab.report.verdict import verdict_text
from lab.words import capitalize_first, format_count, name_ranks

_KIND = (
    "fr: flight recorder dumps: nccl_trace_rank_0, ... as PyTorch pickles them, or JSON of fr_trace_json; "
    "records: records of `lab record` on several machines"
)
_LONGEST_NAME = 100
"""Characters of a job's name, which is part of the name of a folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["fr", "records"], metavar="KIND", help=_KIND)
    parser.add_argument(
        "folder", type=Path, metavar="DUMPS", help="the folder with the dumps or records; dumps also as a tar"
    )
    parser.add_argument("--name", help="name of the job (default: name of DIR, or of the folder)")
    about = "write a script and a scenario here that hang in the same way on this machine, and run them"
    parser.add_argument("--scenario", type=Path, metavar="DIR", help=about)
    parser.add_argument("--no-verify", action="store_true", help="with --scenario: do not run them")
    large = "read up to 1 GiB of dumps and keep up to 1,048,576 calls, 16 times as much as by default"
    parser.add_argument("--large", action="store_true", help=f"{large}; this takes minutes and some GB of memory")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Make the record, which needs no engine, and the scenario."""
    folder: Path | None = arguments.scenario
    source: Path = (folder or arguments.folder).resolve()
    name = arguments.name or (source.name.partition(".")[0] if source.is_file() else source.name) or "dumps"
    if arguments.kind == "records":
        return _import_records(arguments, name[:_LONGEST_NAME])
    if folder is not None:
        _check_free(folder)
    dumps = Dumps(arguments.folder, LARGE if arguments.large else DEFAULT)
    record = import_dumps(dumps, name[:_LONGEST_NAME], arguments.runs)
    data: dict[str, Any] = {**record.result().to_json(), "problems": _problems(record)}
    lines = list[str]()
    if folder is not None:
        replica = _write(folder, dumps, record)
        differences = None if arguments.no_verify else _verify(folder, replica, arguments)
        lines = _describe(folder, replica, differences)
        ranks = {str(rank): [*of] for rank, of in replica.alike.items()}
        about = {"folder": str(folder), "ranks": ranks, "size": replica.size, "notes": [*replica.notes]}
        data["reproduction"] = {**about, "differences": differences}
    run = f" {record.run}" if folder is not None and not arguments.no_verify else ""  # it is not the latest one
    shared.print_answer(arguments, lambda: data, lambda style: "\n".join([_text(record, style, run), *lines]))
    return 1 if folder is not None and data["reproduction"]["differences"] else 0


def _check_free(folder: Path) -> None:
    """Raise a UsageError if the files of the scenario would replace others."""
    for path in (folder / SCENARIO, folder / SCRIPT):
        if path.exists():
            raise UsageError(f"{path} exists", "name another folder with --scenario")


def _write(folder: Path, dumps: Dumps, record: Record) -> Replica:
    result = record.result()
    culprits = [result.culprit.rank] if result.culprit is not None and result.culprit.rank is not None else []
    replica = make_replica(Calls(dumps), result.scenario, culprits, result.reason)
    with UsageError.on_os_error(f"cannot write {folder}", "name a folder that you can write"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SCRIPT).write_text(replica.script, encoding="utf-8")
        (folder / SCENARIO).write_text(replica.scenario, encoding="utf-8")
    return replica


def _verify(folder: Path, replica: Replica, arguments: argparse.Namespace) -> list[str]:
    """Run the scenario on the local engine; return how it hung differently from the job."""
    with shared.Progress(quiet=arguments.json) as progress:
        cluster = Cluster(name=f"import-{os.getpid()}", engine="local", announce=progress.announce)
        result = cluster.run(folder / SCENARIO, runs=arguments.runs)
    differences = find_differences(replica, read_evidence(Record(path=result.path or folder)))
    return differences or ([] if result.verdict == "passed" else [result.reason])


def _describe(folder: Path, replica: Replica, differences: list[str] | None) -> list[str]:
    """Return the lines about the scenario."""
    fewer = f" instead of {replica.size:,}" if len(replica.alike) < replica.size else ""
    lines = ["", f"wrote {folder / SCENARIO}: {format_count(len(replica.alike), 'rank')}{fewer}"]
    lines += [f"  - {note}" for note in replica.notes]
    if differences is None:
        return [*lines, f"not run (--no-verify): `lab run {folder / SCENARIO}`"]
    if differences:
        return [*lines, "it does not hang as the job did:", *(f"  - {one}" for one in differences)]
    waiting = name_ranks(rank for rank, wait in replica.waits.items() if wait)
    return [*lines, f"it hangs as the job did: {waiting} in the same calls, with the same ranks missing"]


def _import_records(arguments: argparse.Namespace, name: str) -> int:
    """Make a record of each world of a job, and print its verdict."""
    results = import_worlds(arguments.folder, arguments.runs, name)
    return shared.print_answer(
        arguments,
        lambda: [result.to_json() for result in results],
        lambda style: "\n".join(verdict_text(result, style) for result in results),
    )


def _problems(record: Record) -> list[str]:
    return [text for event in record.events() if isinstance(event, Dumped) for text in event.lacks]


def _text(record: Record, style: Style, run: str) -> str:
    result = record.result()
    head = f"{style.verdict(result.verdict)}  {style.paint(result.scenario, 'bold')}"
    lines = [head, f"  {capitalize_first(result.reason)}"]
    lines += [f"  - {problem}" for problem in _problems(record)]
    who = name_ranks(rank.rank for rank in result.ranks)
    return "\n".join([*lines, "", f"recorded {who} as {record.run}: `lab explain{run}`, `lab report{run} --open`"])
