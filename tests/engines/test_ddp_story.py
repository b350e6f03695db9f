"""What docs/ddp-story.md says, looked at by other means than the scenario's own expectations."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.features.calls.notation import render_calls
from lab.record.read import Record
from lab.spec.load import load_scenario, scenario_from_script
from lab.trace.model import Trace
from lab.trace.read import read_trace
from tests.engines.lessons import FILES, LIBRARY, Lesson

pytestmark = pytest.mark.trains
STORY = FILES["ddp/story"]
PAGE = (LIBRARY.parent / "docs" / "ddp-story.md").read_text(encoding="utf-8")


def trace_of(result: Result) -> Trace:
    assert result.passed, result.reason
    assert result.path is not None
    return read_trace(Record(path=result.path))


def test_the_trace_has_as_many_calls_as_torch_profiler_counts_without_it(
    lesson: Lesson, cluster: Cluster, tmp_path: Path
) -> None:
    trace = trace_of(lesson("ddp/story"))
    folder = tmp_path / "scripts"
    folder.mkdir()
    for script in (STORY.with_suffix(".py"), Path(__file__).parent / "scripts" / "profiled_story.py"):
        shutil.copy(script, folder)

    profiled = replace(scenario_from_script(folder / "profiled_story.py", timeout_s=120), nodes=2)
    result = cluster.run(profiled, runs=tmp_path / "runs", trace=False)

    assert result.passed, result.reason
    assert not list(result.path.glob("trace/*")) if result.path else False
    for rank in result.ranks:
        calls = Counter(call.op for call in trace.ranks[rank.rank].calls)
        assert calls == rank.notes["counted"]
        assert calls == {"all_gather": 1, "broadcast": 4, "all_reduce": 5, "barrier": 1}


def test_every_step_is_zero_grad_forward_loss_backward_step(lesson: Lesson) -> None:
    trace = trace_of(lesson("ddp/story"))
    for rank in trace.ranks.values():
        names = [mark.name for mark in rank.phases]
        steps = ["zero_grad", "forward", "loss", "backward", "step"] * 3
        assert names == ["init_process_group", "DDP()", *steps, "destroy_process_group"]


def test_a_barrier_at_init_is_none_of_the_process_group(cluster: Cluster, tmp_path: Path) -> None:
    scenario = replace(load_scenario(STORY), env={"TORCH_DIST_INIT_BARRIER": "1"})
    trace = trace_of(cluster.run(scenario, runs=tmp_path / "runs"))
    assert render_calls(trace.ranks[0].calls, trace.groups)[0] == "all_gather int64[1]"


def test_the_values_that_the_page_quotes_are_those_that_were_sent(lesson: Lesson) -> None:
    trace = trace_of(lesson("ddp/story"))
    for rank in trace.ranks.values():
        count, shapes, _, _, order, sizes, *_ = rank.calls
        assert [buffer.values for buffer in count.outputs] == [[6], [6]]
        assert list(shapes.outputs[0].values or ())[:4] == [1000, 10, 10, 1]
        assert list(order.outputs[0].values or ()) == [5, 4, 3, 2, 1, 0, 2]
        assert list(sizes.outputs[0].values or ()) == [4, 2]


def test_models_of_different_length_are_an_error_on_every_rank(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "unlike.py"
    script.parent.mkdir()
    script.write_text(
        "import torch.distributed as dist\n"
        "from torch import nn\n"
        "from torch.nn.parallel import DistributedDataParallel\n"
        "from lab import note\n"
        "dist.init_process_group('gloo')\n"
        "model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4 - dist.get_rank())])\n"
        "try:\n"
        "    DistributedDataParallel(model)\n"
        "except RuntimeError as error:\n"
        "    note('error', str(error))\n"
    )
    result = cluster.run(replace(scenario_from_script(script, timeout_s=120), nodes=2), runs=tmp_path / "runs")
    assert result.passed, result.reason
    quoted = re.search(r"^    (DDP expects same model.*)$", PAGE, re.MULTILINE)
    assert quoted is not None
    assert str(result.ranks[1].notes["error"]).startswith(quoted[1])
    assert "Rank 0 has 8 params" in str(result.ranks[0].notes["error"])


def test_the_page_states_what_the_scenario_states() -> None:
    block = re.search(r"```yaml\n  calls:\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    quoted = [line.strip().removeprefix("- ") for line in block[1].splitlines()]
    assert quoted == list(load_scenario(STORY).expect.extra["calls"] or ())


@pytest.mark.local_first
def test_a_sum_of_gradients_is_known_to_be_their_mean_unless_a_hook_of_the_script_makes_it(lesson: Lesson) -> None:
    for rank in trace_of(lesson("ddp/fp16_compression")).ranks.values():
        sums = [call.divided for call in rank.calls if call.phase == "backward" and call.op == "all_reduce"]
        assert sums == [True, True, False, True]  # DDP, PyTorch's hook, one written by hand, PyTorch's again
