"""Flight recorder dumps become a record, which is explained as any: no more is said than they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.diagnosis.explain import Explanation, explain_run
from lab.errors import RecordError
from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import import_dumps
from lab.features.export.flight_recorder import rank_dumps
from lab.features.html.page import write_report
from lab.record.read import Record
from lab.record.result import Result
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.features.dumps.made import BEGUN, SECOND, dump, entry, waiting, write
from tests.golden import golden
from tests.torchfrtrace import LESSONS, PAGE
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def imported(folder: Path) -> tuple[Record, Result, Explanation]:
    record = import_dumps(Dumps(folder), "job", folder.parent / "runs")
    return record, record.result(), explain_run(record)


def hung(ranks: int, absent: int, folder: Path, **fields: Any) -> Path:
    """A job in which one rank did not come to its third call."""
    everybody = range(ranks)
    dumps = {
        rank: dump([entry(0), entry(1), *([] if rank == absent else [waiting(2)])], everybody, **fields)
        for rank in everybody
    }
    return write(folder, dumps)


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_who_never_came_is_named_with_the_lines_where_all_were(ranks: int, tmp_path: Path) -> None:
    record, result, explanation = imported(hung(ranks, 1, tmp_path / "dumps"))
    assert (result.verdict, result.culprit.rank if result.culprit else None) == ("hung", 1)
    assert result.reason.endswith(golden(1))
    finding = explanation.findings[0]
    assert finding.kind == "never_entered"
    assert golden(2) in finding.sentence
    assert finding.seconds is None
    assert explanation.problems == ()
    assert len(read_trace(record).ranks) == ranks
    write_report(record, tmp_path / "report.html")


def test_json_of_fr_trace_json_is_read_alike(tmp_path: Path) -> None:
    for rank in range(2):
        entries = [entry(0), *([waiting(1)] if rank == 0 else [])]
        for one in entries:
            one["time_discovered_completed_ns"] = one["time_discovered_completed_ns"] or 0
            del one["frames"]
        data = {**dump(entries, range(2)), "pg_status": {"0": {"last_enqueued_collective": "2"}}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(data))
    _, result, explanation = imported(tmp_path)
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert explanation.findings[0].sentence.startswith(golden(1))


def test_ranks_without_a_dump_are_named_and_not_accused(tmp_path: Path) -> None:
    everybody = range(10)
    dumps = {rank: dump([entry(0), waiting(1)], everybody) for rank in everybody if rank not in (5, 9)}
    _, result, explanation = imported(write(tmp_path / "dumps", dumps))
    assert (result.verdict, result.culprit) == ("hung", None)
    assert golden(1) in explanation.problems
    assert explanation.findings[0].kind == "not_known"
    assert explanation.findings[0].sentence.endswith(golden(2))


def test_a_rank_with_a_dump_is_named_beside_one_without(tmp_path: Path) -> None:
    dumps = {rank: dump([entry(0), *([] if rank == 1 else [waiting(1)])]) for rank in range(3)}
    _, result, explanation = imported(write(tmp_path / "dumps", dumps))
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert golden(1) in explanation.findings[0].sentence


def test_different_operations_and_sizes_are_told(tmp_path: Path) -> None:
    dumps = {rank: dump([waiting(0, "nccl:broadcast" if rank == 2 else "nccl:all_reduce")]) for rank in range(4)}
    _, result, explanation = imported(write(tmp_path / "one", dumps))
    assert result.culprit is not None
    assert (result.culprit.rank, explanation.findings[0].kind) == (2, "mismatch")
    odd = {"input_sizes": [[5]], "output_sizes": [[5]]}
    dumps = {rank: dump([waiting(0, **(odd if rank == 3 else {}))]) for rank in range(4)}
    _, result, explanation = imported(write(tmp_path / "two", dumps))
    assert result.culprit is not None
    assert (result.culprit.rank, explanation.findings[0].kind) == (3, "shape")


def test_times_of_different_machines_are_not_compared(tmp_path: Path) -> None:
    dumps = {}
    for rank in range(4):
        entries = [*(entry(number) for number in range(30)), waiting(30)]
        for one in entries if rank == 2 else ():
            one["time_created_ns"] += 100 * SECOND
            one["time_discovered_completed_ns"] = one["time_created_ns"] + SECOND if one["retired"] else None
        dumps[rank] = dump(entries)
    _, _, explanation = imported(write(tmp_path / "dumps", dumps))
    assert {finding.kind for finding in explanation.findings} == {"in_flight", "account"}
    assert golden(1) in explanation.findings[0].sentence
    assert golden(2) in explanation.findings[-1].sentence


def test_a_clock_that_was_put_back_changes_no_order(tmp_path: Path) -> None:
    entries = [entry(0), entry(1), waiting(2, time_created_ns=BEGUN - SECOND)]
    record, *_ = imported(write(tmp_path / "dumps", {rank: dump(entries, range(2)) for rank in range(2)}))
    assert [call.seq for call in read_trace(record).ranks[0].calls] == [1, 2, 3]


def test_calls_from_before_some_dump_begins_are_left_out(tmp_path: Path) -> None:
    dumps = {
        0: dump([*(entry(number) for number in range(90, 100)), waiting(100)]),
        1: dump([*(entry(number) for number in range(95, 100)), waiting(100)]),
        2: dump([entry(number) for number in range(80, 100)]),
        3: dump([*(entry(number) for number in range(99, 100)), waiting(100)]),
    }
    record, result, explanation = imported(write(tmp_path / "dumps", dumps))
    assert {step.seq for step in match_steps(read_trace(record))} == {100, 101}
    assert result.culprit is not None
    assert result.culprit.rank == 2
    assert any(problem.startswith(golden(1)) for problem in explanation.problems)


def test_nobody_is_missed_where_a_dump_may_hold_the_latest_of_another_group_only(tmp_path: Path) -> None:
    groups = {"pg_config": {name: {"name": name, "desc": name, "ranks": "[0, 1]"} for name in ("0", "7")}}
    other = {"process_group": ("7", "7"), "pg_id": 1}
    dumps = {
        0: dump([entry(0), waiting(1, **other, seq=1)], **groups),
        1: dump([entry(number) for number in range(500, 520)], **groups),
    }
    _, result, explanation = imported(write(tmp_path / "dumps", dumps))
    assert result.culprit is None
    assert "never entered" not in explanation.findings[0].sentence


def test_calls_that_were_coalesced_are_one_and_messages_have_the_state_of_their_batch(tmp_path: Path) -> None:
    def batch(rank: int, over: bool) -> list[dict[str, Any]]:
        peer = 1 - rank
        about = {"is_p2p": True, "p2p_seq_id": 1, "state": "scheduled", "retired": False}
        end = {"is_p2p": True, "p2p_seq_id": 1, "state": "completed" if over else "started"}
        return [
            waiting(0, f"nccl:send {rank}->{peer}", **about),
            waiting(1, f"nccl:recv {rank}<-{peer}", **about),
            entry(2, "nccl:coalesced", **end),
        ]

    gathered = {"input_sizes": [[4]], "output_sizes": [[8]]}
    rest = [
        waiting(3, "nccl:_all_gather_base", seq=1, **gathered),
        waiting(4, "nccl:_all_gather_base", seq=1, **gathered),
        entry(5, "nccl:ALLGATHER_coalesced", seq=1),
    ]
    dumps = {rank: dump([*batch(rank, over=rank == 0), *rest], range(2)) for rank in range(2)}
    record, _, _ = imported(write(tmp_path / "dumps", dumps))
    trace = read_trace(record)
    assert [(call.op, call.state, call.peer) for call in trace.ranks[0].calls][:2] == [
        ("send", "completed", 1),
        ("recv", "completed", 1),
    ]
    assert [call.state for call in trace.ranks[1].calls][:2] == ["unfinished", "unfinished"]
    assert [(call.op, call.state, len(call.inputs)) for call in trace.ranks[1].calls][2:] == [
        ("all_gather_into_tensor_coalesced", "completed", 2)
    ]


def test_gloos_dumps_tell_no_ends_no_messages_and_no_groups(tmp_path: Path) -> None:
    """As PyTorch 2.13 writes them: the state stays `scheduled`, and what is over is retired."""

    def call(number: int, *, over: bool, **fields: Any) -> dict[str, Any]:
        about = {"state": "scheduled", "retired": over, "time_discovered_completed_ns": None}
        return entry(number, "gloo:all_reduce", **about, **fields)

    config = {"": {"name": "", "desc": "", "ranks": "[0, 1, 2]"}}
    dumps = {rank: dump([call(0, over=True), *([] if rank == 1 else [call(1, over=False)])]) for rank in range(3)}
    folder = write(tmp_path / "dumps", {rank: {**data, "pg_config": config} for rank, data in dumps.items()})
    _, result, explanation = imported(folder)
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert any(golden(1) in problem for problem in explanation.problems)
    dumps[1]["entries"].append(call(1, over=True, op_id=5, seq=2))
    for rank in (0, 2):
        dumps[rank]["entries"].append(call(2, over=False, op_id=6))
    folder = write(tmp_path / "dumps", {rank: {**data, "pg_config": config} for rank, data in dumps.items()})
    _, result, explanation = imported(folder)
    assert result.culprit is None
    assert golden(2) in explanation.findings[0].sentence


def test_gloos_default_group_has_all_ranks_that_left_a_dump_though_one_called_nothing(tmp_path: Path) -> None:
    """As in a run under the lab's recorder: the group is not described, and is told under no name."""
    config = {"": {"name": "", "desc": "", "ranks": "[0, 1, 2]"}}
    call = {"process_group": ("0", ""), "state": "scheduled", "profiling_name": "gloo:all_reduce"}
    own = {"name": "wrapper", "filename": "/tmp/x/site/labnode/node/recorder/patch.py", "line": 5}
    call["frames"] = [own, *entry(0)["frames"]]
    dumps = {rank: dump([] if rank == 1 else [waiting(0, **call)], pg_config=config) for rank in range(3)}
    _, result, explanation = imported(write(tmp_path / "dumps", dumps))
    assert result.culprit is not None
    assert result.culprit.rank == 1
    said = "Ranks 0 and 2 waited there at train.py:40; rank 1 was in no recorded call."
    assert explanation.findings[0].sentence == golden(1, said)


def test_a_job_whose_calls_are_all_over_is_not_judged(tmp_path: Path) -> None:
    _, result, explanation = imported(write(tmp_path / "dumps", {rank: dump([entry(0)]) for rank in range(4)}))
    assert (result.verdict, result.culprit) == ("error", None)
    assert golden(1) in result.reason
    assert [finding.kind for finding in explanation.findings] == ["account"]


def round_trip(made: TraceMaker, tmp_path: Path) -> Result:
    trace = read_trace(made.record(stop=False))
    (tmp_path / "dumps").mkdir()
    for name, data in rank_dumps(trace, match_steps(trace)):
        (tmp_path / "dumps" / name).write_bytes(data)
    return imported(tmp_path / "dumps")[1]


def test_what_was_written_as_dumps_is_judged_alike_when_it_is_read_again(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 4)
    made.group("1", [1, 3], desc="pair")
    for rank in range(4):
        made.call(rank, "all_gather", 1, 2, [[1.0]], [[1.0]] * 4)
        made.call(rank, "scatter", 3, 4, [[1.0]] * 4 if rank == 0 else [], [[1.0]], root=0)
        made.call(rank, "reduce_scatter", 5, 6, [[1.0]] * 4, [[1.0]])
        made.call(rank, "all_to_all_single", 7, 8, [[1.0] * (rank + 4)], [[1.0] * 4])
        if rank in (1, 3):
            made.call(rank, "all_reduce", 9, 10, [[1.0]], group="1")
        if rank != 2:
            made.call(rank, "barrier", 11, None)
    made.call(2, "recv", 11, None, [], [[1.0]], peer=0)
    result = round_trip(made, tmp_path)
    assert (result.verdict, result.culprit) == ("hung", None)  # rank 0 may have left its send out
    assert "recv from rank 0" in result.reason


# -- what is no dump, or damaged


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"cos\nsystem\n(S'id'\ntR.", "has the pickle opcode GLOBAL; allowed: plain data"),
        (b"{not json", "is neither JSON nor a pickle"),
        (b"[" * 10, "has the pickle opcode '['"),
        (b'{"a":' * 100_000, "is neither JSON nor a pickle"),
        (b'{"version": "2.10"}', "is not a flight recorder dump: it has no version and no pg_config"),
        (b'{"version": "2.10", "pg_config": {}, "entries": {}}', "its entries are not a list"),
        (b'{"version": "2.10", "pg_config": {}, "entries": [{}, 7, null]}', "none of its entries can be read"),
        (b"\x80\x02}.", "is not a flight recorder dump"),
    ],
)
def test_a_file_that_is_no_dump_is_told_by_name_and_the_others_are_read(
    data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = hung(3, 1, tmp_path / "dumps")
    (folder / "nccl_trace_rank_1").write_bytes(data)
    assert main(["import", "fr", "dumps"]) == 0
    shown = capsys.readouterr().out
    assert "nccl_trace_rank_1 " in shown
    assert said in shown
    assert golden(1) in shown
    assert "Traceback" not in shown
    for path in folder.iterdir():
        path.write_bytes(data)
    assert main(["import", "fr", "dumps"]) == 1
    shown = capsys.readouterr().err
    assert golden(2) in shown
    assert len(list((tmp_path / ".lab" / "runs").iterdir())) == 1


def test_calls_that_share_their_lists_without_end_are_not_gone_through(tmp_path: Path) -> None:
    sizes = [[1] * 60] * 60_000
    dumps = {rank: dump([entry(number, input_sizes=sizes) for number in range(200)]) for rank in range(2)}
    with pytest.raises(RecordError, match=golden(1)):
        Dumps(write(tmp_path / "dumps", dumps))


@pytest.mark.parametrize(
    "fields",
    [
        {"record_id": -1},
        {"record_id": 1 << 70},
        {"collective_seq_id": "1"},
        {"collective_seq_id": True},
        {"time_created_ns": None},
        {"time_created_ns": float("nan")},
        {"process_group": "0"},
        {"process_group": ("0", 5)},
        {"profiling_name": None},
        {"profiling_name": "x" * 10_000},
        {"state": "exploded"},
        {"input_sizes": [[1 << 40, 1 << 40]]},
        {"input_sizes": [[-4]]},
        {"input_sizes": 7},
        {"frames": [{"name": "f"}]},
        {"frames": [["f", "g", 3]]},
    ],
)
def test_a_call_that_nobody_wrote_like_that_is_left_out_and_counted(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = hung(3, 1, tmp_path / "dumps")
    write(folder, {0: dump([entry(0), entry(1), {**waiting(2), **fields}], range(3))})
    _, result, explanation = imported(folder)
    assert golden(1) in explanation.problems
    assert result.verdict in ("hung", "error")


def test_files_of_other_names_are_passed_over_and_a_second_dump_of_a_rank_is_told(tmp_path: Path) -> None:
    folder = hung(2, 1, tmp_path / "dumps")
    (folder / "README.txt").write_text("no dump")
    (folder / "core").mkdir()
    (folder / "rank_0.pkl").write_bytes((folder / "nccl_trace_rank_0").read_bytes())
    found = Dumps(folder)
    assert set(found.by_rank) == {0, 1}
    assert found.problems == [golden(1)]
    with pytest.raises(RecordError, match=golden(2)):
        Dumps(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match=golden(3)):
        Dumps(tmp_path / "empty")


def test_nothing_of_a_dump_acts_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = hung(3, 1, tmp_path / "dumps")
    evil = "\x1b]0;owned\x07\x1b[2J<script>.py"
    frames = [{"name": evil, "filename": evil, "line": 1}]
    group = {"process_group": (evil, evil)}
    dumps = {rank: dump([waiting(0, f"nccl:{evil}", frames=frames, **group)], range(2)) for rank in range(2)}
    write(folder, dumps)
    (folder / "\x1b[2Jrank_7").write_bytes(b"x")
    for words in (["import", "fr", "dumps"], ["explain"], ["show"], ["trace"], ["report"]):
        main(words)
    shown = capsys.readouterr()
    assert "\x1b[2J" not in shown.out + shown.err
    assert "\x07" not in shown.out + shown.err


@pytest.mark.parametrize("name", [["--name", "llama"], ["--scenario", "llama", "--no-verify"]])
def test_the_record_of_a_job_has_its_times_and_the_answer_as_json(
    name: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hung(2, 1, tmp_path / "dumps")
    assert main(["import", "fr", "dumps", *name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["scenario"], told["verdict"], told["culprit"]["rank"], told["problems"]) == ("llama", "hung", 1, [])
    record = Record(path=tmp_path / ".lab" / "runs" / told["run"])
    assert read_trace(record).origin == pytest.approx(BEGUN / SECOND)


def test_the_docs_hold_torchfrtrace_against_the_lab_for_every_lesson_of_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in LESSONS if f"\n| `{name}` | " not in page] == []


# -- a job that was dumped under way


def dumped_after(seconds: float, folder: Path) -> Path:
    """Three ranks, of which rank 1 has not come to the last call of rank 0, with files written so long after it."""
    ranks = {0: [waiting(2)], 1: [], 2: [waiting(2)]}
    write(folder, {rank: dump([entry(0), entry(1), *ours], range(3)) for rank, ours in ranks.items()})
    for file in folder.iterdir():
        os.utime(file, ns=(0, BEGUN + 2 * SECOND + int(seconds * SECOND)))
    return folder


@pytest.mark.parametrize(("seconds", "verdict"), [(0.5, "error"), (8, "error"), (30, "hung"), (-5, "hung")])
def test_calls_that_have_only_begun_are_no_hang(seconds: float, verdict: str, tmp_path: Path) -> None:
    _, result, _ = imported(dumped_after(seconds, tmp_path / "dumps"))
    assert (result.verdict, result.culprit is None) == (verdict, verdict == "error")
    assert (golden(1) in result.reason) == (verdict == "error")


def test_different_calls_are_a_hang_at_once(tmp_path: Path) -> None:
    folder = dumped_after(0.5, tmp_path / "dumps")
    write(folder, {1: dump([entry(0), entry(1), waiting(2, "nccl:broadcast")], range(3))})
    os.utime(folder / "nccl_trace_rank_1", ns=(0, BEGUN + 3 * SECOND))
    _, result, _ = imported(folder)
    assert (result.verdict, result.culprit.rank if result.culprit else None) == ("hung", 1)


JOB = """
import os, sys, threading, time, torch, torch.distributed as dist
rank, folder, hangs = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "hangs"
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)

def dump():
    while not os.path.exists(f"{folder}/now"):
        time.sleep(0.01)
    with open(f"{folder}/dumps/rank_{rank}", "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace())
    while len(os.listdir(f"{folder}/dumps")) < 2:
        time.sleep(0.05)
    time.sleep(0.5)
    os._exit(0)

threading.Thread(target=dump).start()
for step in range(1_000_000):
    if rank == 1 and step == 50:
        time.sleep(25 if hangs else 0)
        open(f"{folder}/now", "w").close()
        time.sleep(600 if hangs else 0)
    dist.all_reduce(torch.ones(1000))
"""


@pytest.mark.long
@pytest.mark.parametrize(("how", "verdict"), [("goes on", "error"), ("hangs", "hung")])
def test_a_real_job_hangs_only_if_its_calls_wait_for_long(how: str, verdict: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "dumps").mkdir()
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000"}
    argv = [sys.executable, str(tmp_path / "job.py")]
    jobs = [subprocess.Popen([*argv, str(rank), str(tmp_path), how], env=env) for rank in range(2)]
    for job in jobs:
        job.wait(120)
    _, result, _ = imported(tmp_path / "dumps")
    assert result.verdict == verdict, result.reason
    assert (result.culprit.rank if result.culprit else None) == (1 if how == "hangs" else None)
