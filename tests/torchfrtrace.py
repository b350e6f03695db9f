"""What PyTorch's torchfrtrace says of a record, and a table of that beside what the lab says: `dev/dumps`."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import import_dumps
from lab.features.export.flight_recorder import PREFIX, rank_dumps
from lab.record.read import Record
from lab.record.result import Result
from lab.spec.load import load_scenario
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from lab.words import join_words, name_ranks

ROOT = Path(__file__).resolve().parent.parent
LESSONS = (
    "broken/never_arrives", "broken/rank0_exits_early", "broken/only_on_rank0", "broken/mismatched_collectives",
    "broken/wrong_shape", "survival/gloo_timeout", "incidents/silent_hang", "incidents/code_change",
)  # fmt: skip
"""Those of the library in which something hangs or does not match."""
PAGE = ROOT / "docs" / "dumps-reference.md"


def write_dumps(record: Record, folder: Path) -> Path:
    """The dumps of a record, in a folder that is made."""
    folder.mkdir(parents=True)
    trace = read_trace(record)
    for name, data in rank_dumps(trace, match_steps(trace)):
        (folder / name).write_bytes(data)
    return folder


def torchfrtrace(folder: Path) -> list[Any]:
    """The collectives and messages that torchfrtrace finds in dumps; what it raises is raised."""
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir

    arguments = JobConfig().parse_args([str(folder), "-p", PREFIX])
    details, version = read_dir(arguments)
    details = dict(sorted(details.items(), key=lambda item: int(item[1]["rank"])))  # it goes by the first of them
    return list(build_db(details, arguments, version).collectives)


def wrong(collectives: list[Any]) -> list[str]:
    """What is wrong in torchfrtrace's eyes, the first in each group, each in a few words."""
    found: dict[str, str] = {}
    for one in collectives:
        op = one.collective_name.partition(":")[2]
        what = f"`{op}` #{one.collective_seq_id}" if " " not in op else f"`{op}`"
        if one.mismatch_collectives:
            states: dict[str, list[int]] = {}
            for rank, other in one.mismatch_collectives.items():
                states.setdefault(other.type_of_mismatch.state.name, []).append(rank)
            told = join_words(f"{state}: {name_ranks(ranks)}" for state, ranks in states.items())
            found.setdefault(one.pg_desc, f"{what}: {told}")
        elif one.missing_ranks:
            found.setdefault(one.pg_desc, f"{what}: not all ranks joined, missing {name_ranks(one.missing_ranks)}")
        elif not one.pass_check:
            found.setdefault(one.pg_desc, f"{what}: mismatch")
    return list(found.values())


def _row(name: str, result: Result, folder: Path) -> str:
    dumps = write_dumps(Record(path=result.path or Path()), folder / "dumps" / name)
    says = join_words(wrong(torchfrtrace(dumps))) or "FULLY_MATCHED"
    again = import_dumps(Dumps(dumps), Path(name).name, folder / "imported").result()
    return f"| `{name}` | {says} | {_told(again)} |"


def _told(result: Result) -> str:
    """What the lab says of a run, before what its scenario expects of it."""
    who = "nobody named" if result.culprit is None else result.culprit.who.removesuffix(" on ")
    what = f": {result.culprit.error}" if result.culprit is not None else ""
    reason = result.reason.partition("; ")[0] if result.culprit is None else ""
    text = f"{who}{what}" if what else f"{who}: {reason}"
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def main() -> None:
    """Run the lessons on the local engine and write the table into the docs."""
    parser = argparse.ArgumentParser(prog="dev/dumps", description=main.__doc__)
    parser.add_argument("--print", action="store_true", help="print the table, and leave the docs as they are")
    arguments = parser.parse_args()
    rows = ["| lesson | torchfrtrace | the lab |", "|---|---|---|"]
    from lab.cluster import Cluster  # those who import this module want no cluster

    with tempfile.TemporaryDirectory() as folder, Cluster(nodes=4, engine="local", name="dev-dumps") as cluster:
        for name in LESSONS:
            scenario = load_scenario(ROOT / "scenarios" / f"{name}.yaml")
            rows.append(_row(name, cluster.run(scenario, runs=Path(folder, "runs")), Path(folder)))
    table = "\n".join(rows)
    if arguments.print:
        print(table)
        return
    page = PAGE.read_text(encoding="utf-8")
    between = re.compile(r"(<!-- torchfrtrace -->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(between.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
