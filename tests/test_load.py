"""What a valid scenario file or script becomes, and what a record says of it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import ScenarioError
from lab.features.equal.runs import EqualTo
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds.links import Network
from lab.features.faults.kinds.nodes import Kill
from lab.features.faults.network import Condition, Link
from lab.features.grade.keys import Grading
from lab.features.launchers.launchers import Torchrun
from lab.features.lessons.question import NoteRef, Question
from lab.spec.declare import all_keys_of
from lab.spec.keys import Volume
from lab.spec.kinds import make_slug
from lab.spec.launching import Launching
from lab.spec.load import dump_scenario, load_scenario, scenario_from_script
from lab.spec.scenario import Expect, Resources, Scenario, Tolerance, Tracing
from tests.golden import golden

EVERYTHING = """\
name: scatter
learn: Rank 0 splits a list of tensors and hands the i-th one to rank i.
predict:
  ask: What does rank 2 hold after the call?
  choices: ["[10.0]", "[20.0]"]
  answer: {note: received, rank: 2}
nodes: 3
nproc_per_node: 1
backend: gloo
needs: [monitored barrier]
script: train.py
folder: .
launcher: {torchrun: {min_nodes: 2, max_nodes: 3, max_restarts: 3, monitor_interval: 500ms, last_call: 5}}
args: [--lr, 0.10, 'x y']
env: {NAME: text, COUNT: 010, RATE: 1e-6}
timeout: 2m
cold: yes
one_user: true
split_gpus: true
rewrite_address: true
resources: {cpus: 1.5, memory: 1GiB, gpus: 1}
image: mine:1
requirements: [TQDM, 'accelerate >=1']
data: {mnist: data, root: /}
volumes:
  - data:/data:ro
  - /:/host
outputs: [out, '*.pt']
network: {profile: wan-40ms, rate: 10mbit, links: {node0 -> node1: {delay: 5ms, jitter: 1ms, loss: 0.5%}}}
faults: [{kill: node1, when: {rank: 1, note: loss, equals: 0.5}, for: 3s}]
rerun: true
strict_order: true
mutant: skip all_reduce rank=1 nth=2
trace: {values: 9}
expect:
  exit: {0: 0, 1: 1, 2: -9}
  notes:
    received: [10.0 * rank]
    loss: {0: 1e-6, 1: .nan, 2: -.inf}
    backend: gloo
    nested: {a: [1, ~, true, 2024-01-01]}
  logs: {1: 'receiving \\d+'}
  calls: {0: [send to 1], 1: [recv, ...]}
  check: verify.py:check_sums
  replicas: equal
  verdict: failed
  culprit: 1
  detected_within: 5s
  restarts: [1, node2, ~]
  reason: 'rank 1 .*'
  tolerance: {relative: 1e-3, absolute: 0}
  equal_to: {ranks: 1}
  mutants: 80
grade: {points: {note loss: 2.5, check: 4}, files: [data]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script, a check and a folder of data."""
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "verify.py").write_text("def check_sums(results):\n    return True\n")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str | bytes, name: str = "scenario.yaml") -> Scenario:
    path = Path(name)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_scenario(path)


def refusal_of(text: str | bytes) -> str:
    with pytest.raises(ScenarioError) as refusal:
        load(text)
    return refusal.value.message


def test_every_key_arrives_in_the_scenario(folder: Path) -> None:
    scenario = load(EVERYTHING)
    loss = scenario.expect.notes["loss"]
    assert math.isnan(loss.pop(1))
    assert scenario == Scenario(
        name="scatter",
        script=folder / "train.py",
        folder=folder,
        source=folder / "scenario.yaml",
        learn=golden(1),
        nodes=3,
        nproc_per_node=1,
        launcher=Launching(
            "torchrun",
            Torchrun(min_nodes=2, max_nodes=3, max_restarts=3, monitor_interval_s=0.5, last_call_s=5),
        ),
        backend="gloo",
        args=("--lr", "0.10", "x y"),
        env={"NAME": "text", "COUNT": "010", "RATE": "1e-6"},
        timeout_s=120,
        cold=True,
        one_user=True,
        split_gpus=True,
        rewrite_address=True,
        resources=Resources(cpus=1.5, memory_bytes=2**30, gpus=1),
        image="mine:1",
        data={"mnist": folder / "data", "root": Path("/")},
        volumes=(
            Volume(source=folder / "data", target="/data", read_only=True),
            Volume(source=Path("/"), target="/host"),
        ),
        outputs=("out", "*.pt"),
        trace=Tracing(values=9),
        expect=Expect(
            exit={0: 0, 1: 1, 2: -9},
            notes={
                "received": ["10.0 * rank"],
                "loss": {0: 1e-6, 2: -math.inf},
                "backend": "gloo",
                "nested": {"a": [1, None, True, "2024-01-01"]},
            },
            logs={1: "receiving \\d+"},
            check="verify.py:check_sums",
            verdict="failed",
            culprit=1,
            restarts=(1, "node2", None),
            reason="rank 1 .*",
            tolerance=Tolerance(relative=1e-3, absolute=0),
            extra={
                "calls": {0: ("send to 1",), 1: ("recv", "...")},
                "replicas": "equal",
                "detected_within": 5.0,
                "equal_to": EqualTo(ranks=1),
                "mutants": 80,
            },
        ),
        extra={
            "needs": ("monitored barrier",),
            "requirements": ("accelerate>=1", "tqdm"),
            "network": Network(
                profile="wan-40ms",
                rate_bits_per_s=1e7,
                links=((Link("node0", "->", "node1"), Condition(delay_s=0.005, jitter_s=0.001, loss=0.005)),),
            ),
            "faults": (Fault(what=Kill(node="node1"), when=When(rank=1, note="loss", equals=0.5), for_s=3.0),),
            "rerun": True,
            "strict_order": True,
            "mutant": "skip all_reduce rank=1 nth=2",
            "predict": Question(
                ask=golden(2),
                choices=("[10.0]", "[20.0]"),
                answer=NoteRef(note="received", rank=2),
            ),
            "grade": Grading(points={"note loss": 2.5, "check": 4}, files=("data",)),
        },
    )


def test_a_record_says_every_key_and_loads_again(folder: Path) -> None:
    scenario = load(EVERYTHING)
    dumped = dump_scenario(scenario)
    said = yaml.safe_load(dumped)
    for declared, section in (
        (Scenario, said),
        (Resources, said["resources"]),
        (Tracing, said["trace"]),
        (Expect, said["expect"]),
        (Tolerance, said["expect"]["tolerance"]),
        (Grading, said["grade"]),
    ):
        assert list(section) == list(all_keys_of(declared))
    assert dump_scenario(load(dumped)) == dumped
    again = load(dumped)
    assert math.isnan(again.expect.notes["loss"].pop(1))
    assert math.isnan(scenario.expect.notes["loss"].pop(1))
    assert again == scenario


def test_a_record_says_what_differs_from_the_default_and_what_the_reader_looks_for(folder: Path) -> None:
    dumped = dump_scenario(load("script: train.py\nargs: ['0.10', 'yes']\nexpect: {verdict: hung}\n"))
    assert dumped == (golden(1))


@pytest.mark.parametrize(("text", "outputs"), [("false", None), ("true", ()), ("[./out/, a/*.pt]", ("out", "a/*.pt"))])
def test_which_files_come_back_can_be_said(folder: Path, text: str, outputs: tuple[str, ...] | None) -> None:
    scenario = load(f"script: train.py\noutputs: {text}\n")
    assert scenario.outputs == outputs
    assert load(dump_scenario(scenario)).outputs == outputs


@pytest.mark.parametrize(("text", "tracing"), [("false", Tracing(on=False)), ("true", Tracing()), ("{}", Tracing())])
def test_a_trace_can_be_switched_off(folder: Path, text: str, tracing: Tracing) -> None:
    assert load(f"script: train.py\ntrace: {text}\n").trace == tracing


def test_how_the_recorder_works_may_be_said_in_the_environment(folder: Path) -> None:
    assert load(golden(1)).env == {"LAB_RECORDER": "python"}


def test_a_script_is_all_that_a_scenario_needs(folder: Path) -> None:
    assert load("script: train.py\n", "All Reduce (2).yaml") == Scenario(
        name="all-reduce-2", script=folder / "train.py", source=folder / "All Reduce (2).yaml"
    )


def test_paths_are_relative_to_the_file_and_not_to_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("scenario.yaml").write_text("script: train.py\nvolumes: ['data:/data']\n")
    monkeypatch.chdir("/")
    scenario = load_scenario(folder / "scenario.yaml")
    assert scenario.script == folder / "train.py"
    assert scenario.volumes[0].source == folder / "data"


def test_a_script_may_lie_in_a_folder_below_and_has_its_check_there(folder: Path) -> None:
    Path("below").mkdir()
    Path("below/go.py").write_text("")
    Path("below/judge.py").write_text("from elsewhere import fair\n")
    scenario = load("script: below/go.py\nexpect: {check: judge.py:fair}\n")
    assert (scenario.script, scenario.expect.check) == (folder / "below/go.py", "judge.py:fair")


def test_a_link_inside_the_folder_is_a_script(folder: Path) -> None:
    Path("alias.py").symlink_to("train.py")
    assert load("script: alias.py\n").script == folder / "alias.py"


def test_a_check_that_may_be_defined_at_run_time_is_left_to_the_run(folder: Path) -> None:
    Path("verify.py").write_text("from elsewhere import *\n")
    assert load(golden(1)).expect.check == "verify.py:anything"


def test_yes_no_on_and_off_are_booleans_where_a_boolean_is_asked_for(folder: Path) -> None:
    for word, meaning in {"yes": True, "on": True, "True": True, "no": False, "off": False, "false": False}.items():
        assert load(f"script: train.py\ncold: {word}\n").cold is meaning


def test_an_anchor_repeats_a_value(folder: Path) -> None:
    scenario = load("script: train.py\nenv: {A: &a x, B: *a}\nexpect: {notes: {p: &l [1, rank], q: *l}}\n")
    assert scenario.env == {"A": "x", "B": "x"}
    assert scenario.expect.notes == {"p": [1, "rank"], "q": [1, "rank"]}


def test_a_problem_that_an_alias_repeats_is_told_once(folder: Path) -> None:
    message = refusal_of("script: train.py\nexpect: {notes: {p: &l [rank + foo], q: *l}}\n")
    assert [line.split(":")[1:3] for line in message.split("\n")] == [["2", "25"], ["2", "25"]]
    assert "expect.notes.p[0]" in message
    assert "expect.notes.q[0]" in message


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(folder: Path) -> None:
    assert load(b"\xef\xbb\xbfscript: train.py\r\nnodes: 2\r\n").nodes == 2


def test_an_expression_is_tried_before_the_run_only_where_the_ranks_are_known(folder: Path) -> None:
    text = "script: train.py\nexpect: {notes: {a: '[1, 2][rank]'}}\n"
    assert load(text).expect.notes == {"a": "[1, 2][rank]"}
    for some in ("list(range(nnodes))[5] + rank", "10 // (world_size - 1) + rank", "[1][node_rank - 2]"):
        assert load(golden(1, some)).expect.notes == {"a": some}
    assert golden(2) in refusal_of(f"nodes: 3\nnproc_per_node: 1\n{text}")


def test_an_expression_of_one_rank_is_tried_for_that_rank_only(folder: Path) -> None:
    scenario = load("script: train.py\nnodes: 2\nnproc_per_node: 1\nexpect: {notes: {a: {0: 1, 1: 1 / rank}}}\n")
    assert scenario.expect.notes == {"a": {0: 1, 1: "1 / rank"}}


# ----------------------------------------------------------------------------------------------------------- problems


def test_only_the_first_problems_are_shown(folder: Path) -> None:
    with pytest.raises(ScenarioError) as refusal:
        load("script: train.py\n" + "".join(f"k{number}: 1\n" for number in range(30)))
    assert len(refusal.value.message.split("\n")) == 20
    assert refusal.value.hint == golden(1)


WORDS = ["script", "train.py", "nodes", "expect", "notes", "env", "1e999", "yes", "<<", "---", "  ", "\n", "\t", "\0"]
SIGNS = [": ", "- ", ", ", "| ", "> ", "? ", "# ", "&a ", "*a ", "!!str ", *"[]{}~%@0é\\\"'"]
pieces = st.sampled_from([*WORDS, *SIGNS])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces, max_size=30).map(lambda parts: "".join(parts).encode()) | st.binary(max_size=60))
def test_any_bytes_are_a_scenario_or_a_scenario_error(folder: Path, data: bytes) -> None:
    try:
        assert load(data).script == folder / "train.py"
    except ScenarioError as error:
        lines = error.message.split("\n")
        assert all(line.startswith("scenario.yaml:") for line in lines)


# ----------------------------------------------------------------------------------------------------- plain scripts


def test_a_plain_script_is_a_scenario_named_after_its_file(folder: Path) -> None:
    Path("My Script.py").write_text("")
    assert scenario_from_script(Path("My Script.py")) == Scenario(name="my-script", script=folder / "My Script.py")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("trian.py", "trian.py:1:1: no such script (did you mean 'train.py'?)"),
        ("nowhere/a.py", "nowhere/a.py:1:1: no such script; the folder 'nowhere' does not exist"),
        (".", ".:1:1: is a folder; allowed: a script; it holds train.py, verify.py"),
        ("/dev/null", "/dev/null:1:1: is not a regular file; allowed: a script"),
    ],
)
def test_what_is_no_script_is_refused(folder: Path, path: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        scenario_from_script(Path(path))
    assert refusal.value.message == message


@given(st.text(max_size=100))
def test_any_file_name_makes_a_valid_name(stem: str) -> None:
    name = make_slug(stem)
    assert 0 < len(name) <= 63
    assert name == make_slug(name)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    assert name[0] not in "-_"


def test_loading_a_scenario_imports_nothing_heavy() -> None:
    program = (
        "import sys, lab.spec.load\n"
        "heavy = {'simpleeval', 'rich', 'hypothesis', 'torch', 'docker', 'difflib', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
