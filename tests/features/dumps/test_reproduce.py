"""A small scenario that hangs as a job did, from its dumps: what it keeps, what it leaves out, what it refuses."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.diagnosis.evidence import read_evidence
from lab.errors import UsageError
from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import Calls
from lab.features.dumps.reproduce import SCENARIO, SCRIPT, Replica, find_differences, make_replica
from lab.spec.load import open_scenario
from tests.features.dumps.made import dump, entry, waiting, write
from tests.features.dumps.test_import import hung, imported
from tests.golden import golden

pytestmark = pytest.mark.unit
ALL_REDUCE, GATHER, SCATTER = "nccl:all_reduce", "nccl:_all_gather_base", "nccl:_reduce_scatter_base"


def replica_of(folder: Path) -> Replica:
    """The scenario of a folder; its script is Python."""
    made = make_replica(Calls(Dumps(folder)), "job", [], "it hung")
    compile(made.script, SCRIPT, "exec")
    return made


def sized(name: str, size: int, **fields: Any) -> dict[str, Any]:
    """The name and the sizes of a call."""
    sizes = {"input_sizes": [[size]], "output_sizes": [[size]], "input_dtypes": ["BFloat16"]}
    return {"name": name, **sizes, "output_dtypes": ["BFloat16"], **fields}


def ranks_with(calls: dict[int, Sequence[dict[str, Any]]], groups: dict[str, list[list[int]]]) -> dict[int, Any]:
    """Dumps of ranks; a call whose group has a name is one of the group with that description that has the rank."""
    numbered = [(name, ranks) for name, lists in groups.items() for ranks in lists]
    dumps = {}
    for rank, ours in calls.items():
        seqs: dict[str, int] = {}
        entries = []
        for number, call in enumerate(ours):
            role = call.pop("group", "")
            at = next((str(at) for at, (name, of) in enumerate(numbered, 1) if name == role and rank in of), "0")
            seqs[at] = seqs.get(at, 0) + 1
            known = {"process_group": (at, role or "default_pg"), "pg_id": int(at), "seq": seqs[at]}
            state = {"state": "started", "retired": False} if call.pop("hangs", False) else {}
            entries.append(entry(number, **{**call, **known, **state}))
        config = {
            str(at): {"name": str(at), "desc": name, "ranks": str(of)} for at, (name, of) in enumerate(numbered, 1)
        }
        dumps[rank] = dump(entries, range(len(calls)))
        dumps[rank]["pg_config"] |= config
    return dumps


def test_ranks_that_behave_alike_become_two_and_the_missing_one_stays(tmp_path: Path) -> None:
    made = replica_of(hung(64, 17, tmp_path / "dumps"))
    assert made.size == 64
    assert [ranks[0] for ranks in made.alike.values()] == [0, 1, 17]
    assert sorted({rank for ranks in made.alike.values() for rank in ranks}) == [*range(64)]
    wait = (frozenset({"all_reduce"}), frozenset({0, 1, 2}))
    assert made.waits == {0: wait, 1: wait, 2: None}
    assert made.notes == ()


def test_a_grid_of_groups_stays_a_grid_and_repeated_steps_become_loops(tmp_path: Path) -> None:
    tp, dp = (
        [[4 * row + at for at in range(4)] for row in range(4)],
        [[at + 4 * row for row in range(4)] for at in range(4)],
    )
    calls = {}
    for rank in range(16):
        step = [*({**sized(ALL_REDUCE, 4096), "group": "tp"} for _ in range(3)), {**sized(SCATTER, 64), "group": "dp"}]
        calls[rank] = [dict(one) for _ in range(40) for one in step]
        calls[rank] += [{**step[0], "hangs": True}] if rank in (4, 5, 7) else []
        calls[rank] += [*map(dict, step[:3]), {**step[3], "hangs": True}] if rank // 4 != 1 else []
    made = replica_of(write(tmp_path / "dumps", ranks_with(calls, {"tp": tp, "dp": dp})))
    assert [ranks[0] for ranks in made.alike.values()] == [0, 1, 2, 4, 5, 6]
    assert made.waits[5] is None
    assert made.waits[3] == made.waits[4] == (frozenset({"all_reduce"}), frozenset({3, 4, 5}))
    assert made.waits[2] == (frozenset({"reduce_scatter_tensor"}), frozenset({2, 5}))
    groups = "tp = create_groups([0, 1, 2], [3, 4, 5])\ndp = create_groups([0, 3], [1, 4], [2, 5])\n\n"
    assert made.script.partition(groups)[2].splitlines()[:3] == [
        "for _ in range(3):",
        "    for _ in range(3):",
        "        dist.all_reduce(torch.ones(1000, dtype=torch.bfloat16), group=tp)",
    ]


def test_another_operation_and_another_size_stay_different(tmp_path: Path) -> None:
    step = [sized(GATHER, 5_000_000), sized(ALL_REDUCE, 7)]
    last = {0: sized(GATHER, 5_000_000), 1: sized(GATHER, 5_000_000), 2: sized(SCATTER, 5_000_000)}
    calls = {rank: [*map(dict, step * 3), {**last[min(rank, 2)], "hangs": True}] for rank in range(3)}
    made = replica_of(write(tmp_path / "op", ranks_with(calls, {})))
    assert [made.waits[rank][0] for rank in (0, 2)] == [{"all_gather_into_tensor"}, {"reduce_scatter_tensor"}]  # type: ignore[index]
    last = {0: sized(ALL_REDUCE, 5_000_000), 1: sized(ALL_REDUCE, 5_000_000), 2: sized(ALL_REDUCE, 5_000_001)}
    calls = {rank: [*map(dict, step * 3), {**last[min(rank, 2)], "hangs": True}] for rank in range(3)}
    made = replica_of(write(tmp_path / "size", ranks_with(calls, {})))
    assert made.notes == (golden(1),)
    assert "dist.all_reduce(torch.ones(1000, dtype=torch.bfloat16))  # hangs" in made.script
    assert "dist.all_reduce(torch.ones(1001, dtype=torch.bfloat16), group=second_1)  # hangs" in made.script


def test_messages_are_sent_to_the_same_neighbors_and_batches_stay_batches(tmp_path: Path) -> None:
    def message(name: str, number: int, **fields: Any) -> dict[str, Any]:
        return {"name": name, "seq": 0, "p2p_seq_id": number, "is_p2p": True, **fields}

    dumps = {}
    for rank in range(4):
        after, before, entries = (rank + 1) % 4, (rank - 1) % 4, list[dict[str, Any]]()
        for step in range(1, 6):
            state = {"state": "started"} if step == 5 else {}
            if (rank, step) != (2, 5):
                ends = [f"nccl:send {rank}->{after}", f"nccl:recv {rank}<-{before}", "nccl:coalesced"]
                entries += [entry(len(entries) + at, **message(end, step, **state)) for at, end in enumerate(ends)]
        dumps[rank] = dump(entries)
    made = replica_of(write(tmp_path / "dumps", dumps))
    assert [ranks[0] for ranks in made.alike.values()] == [0, 1, 2, 3]
    assert made.waits[2] is None
    assert made.waits[0] == (frozenset({"send", "recv"}), frozenset({1, 3}))
    assert made.script.count("dist.batch_isend_irecv") == 2
    assert "(rank + 1) % 4" in made.script
    assert "(rank + 3) % 4" in made.script


def test_ranks_without_a_dump_take_part_and_may_be_missing(tmp_path: Path) -> None:
    folder = hung(8, 1, tmp_path / "dumps")
    for rank in (1, 6):
        (folder / f"nccl_trace_rank_{rank}").unlink()
    made = replica_of(folder)
    missing = [made.alike[rank] for rank, wait in made.waits.items() if wait is None]
    assert {*missing[0]} == {1, 6}
    folder = hung(8, 1, tmp_path / "known")
    (folder / "nccl_trace_rank_6").unlink()
    made = replica_of(folder)
    assert [made.alike[rank][0] for rank, wait in made.waits.items() if wait is None] == [1]


def test_what_gloo_lacks_is_replaced_and_said(tmp_path: Path) -> None:
    calls = {
        rank: [sized("nccl:allreduce_coalesced", 8), sized("nccl:something_new", 8),
               {**sized("nccl:all_to_all", 64), "input_dtypes": ["Short"], "hangs": True}][: 3 - (rank == 1)]
        for rank in range(3)
    }  # fmt: skip
    made = replica_of(write(tmp_path / "dumps", ranks_with(calls, {})))
    assert [*made.notes] == [golden(1), golden(2), golden(3), golden(4)]
    assert "dist.barrier()" in made.script


def test_dumps_without_a_call_in_progress_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "dumps", {rank: dump([entry(0), entry(1)], range(2)) for rank in range(2)})
    with pytest.raises(UsageError, match="no call in progress"):
        replica_of(folder)


def test_the_verb_writes_a_valid_scenario_and_replaces_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hung(5, 3, tmp_path / "dumps")
    command = ["import", "fr", "--scenario", "hang", "dumps", "--no-verify"]
    assert main(command) == 0
    assert golden(1) in capsys.readouterr().out
    scenario = open_scenario(tmp_path / "hang" / SCENARIO)
    assert (scenario.name, scenario.nproc_per_node, scenario.expect.verdict) == ("hang", 3, "hung")
    assert (scenario.expect.culprit, scenario.extra["strict_order"]) == (2, True)
    assert main(command) == 2
    assert "hang/scenario.yaml exists" in capsys.readouterr().err


def test_gloo_waits_for_the_root_that_is_missing(tmp_path: Path) -> None:
    entries = {
        rank: [waiting(2, "gloo:broadcast", state="scheduled", retired=False)] if rank else [] for rank in range(3)
    }
    dumps = {
        rank: dump([entry(0, "gloo:all_reduce"), entry(1, "gloo:all_reduce"), *ours], range(3))
        for rank, ours in entries.items()
    }
    made = replica_of(write(tmp_path / "dumps", dumps))
    assert "strict_order" not in made.scenario
    assert "src=0" in made.script
    assert [wait is None for wait in made.waits.values()] == [True, False, False]


def test_a_job_hangs_as_itself_and_not_as_one_in_which_another_rank_is_missing(tmp_path: Path) -> None:
    made = replica_of(hung(3, 1, tmp_path / "one"))
    same, _, _ = imported(tmp_path / "one")
    assert find_differences(made, read_evidence(same)) == []
    other, _, _ = imported(hung(3, 2, tmp_path / "two"))
    assert find_differences(made, read_evidence(other)) == [golden(1), golden(2)]


@pytest.mark.parametrize("text", ["list", "import", "x\n__import__('os').abort()", '"""', "rank", "2d", "}{0}"])
def test_no_text_of_a_dump_becomes_code(text: str, tmp_path: Path) -> None:
    frames = [{"filename": f"/home/{text}", "name": text, "line": 3}]
    about = {"group": text, "frames": frames, "input_dtypes": [text]}
    calls = {
        rank: [{**sized(ALL_REDUCE, 8), **about}, {**sized(f"nccl:{text}", 8), **about, "hangs": True}]
        for rank in range(3)
    }
    made = replica_of(write(tmp_path / "dumps", ranks_with(calls, {text: [[0, 1, 2]]})))
    tree = ast.parse(made.script)
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert called == {"dist.init_process_group", "dist.get_rank", "dist.new_group", "dist.all_reduce", "dist.barrier",
                      "torch.ones", "time.sleep"}  # fmt: skip
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert not stored & {*dir(builtins), "dist", "torch", "time"}
