"""The Python API, on an engine without nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import Cluster, RunOptions
from lab.diagnosis.evidence import Evidence, Judgement
from lab.engine import select
from lab.errors import ClusterBusy, ClusterError, ClusterUnfit, EngineUnavailable, LabError, RecordError, UsageError
from lab.node.messages.agent import Refused
from lab.plan.cluster import ClusterInfo, Shape
from lab.record.read import list_records
from lab.run.collect import Observer
from lab.run.lock import ClusterLock
from lab.spec.keys import Volume
from lab.spec.load import open_scenario
from lab.spec.scenario import Resources, Scenario
from tests.fake_engine import END, FakeEngine, exits, prints
from tests.golden import golden


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "s.py").write_text("print()\n")
    return tmp_path


SCRIPT = "s/s.py"


def test_a_cluster_lives_as_long_as_its_block():
    engine = FakeEngine()
    with Cluster(2, name="c", engine=engine) as cluster:
        assert list(engine.clusters) == ["c"]
        assert cluster.run(SCRIPT).passed
    assert engine.clusters == {}


def test_up_again_in_the_same_shape_changes_nothing():
    engine = FakeEngine()
    assert Cluster(2, name="c", engine=engine).up()[1] is True
    assert Cluster(2, name="c", engine=engine).up()[1] is False
    assert Cluster(name="c", engine=engine).up()[1] is False
    assert engine.calls.count("create") == 1


@pytest.mark.parametrize(("name", "warned"), [("c", True), ("d", False), (None, False)])
def test_another_engine_with_a_cluster_of_this_name_is_named(
    name: str | None, warned: bool, monkeypatch: pytest.MonkeyPatch
):
    engines = {name: FakeEngine() for name in ("docker", "local")}
    for of_engine, engine in engines.items():
        monkeypatch.setattr(engine, "name", of_engine)
    monkeypatch.setattr(select, "OPENERS", {name: lambda one=one: one for name, one in engines.items()})
    Cluster(2, name="c", engine=engines["docker"]).up()
    announced = list[str]()
    Cluster(2, name=name, engine="local", announce=announced.append).up()
    assert ["another cluster c: --engine docker" in text for text in announced if "warning" in text] == [True] * warned


def test_an_unknown_argument_is_refused_with_a_near_match():
    with pytest.raises(TypeError, match="did you mean 'nodes'"):
        Cluster(nodse=3)


def test_up_in_another_shape_says_what_differs_and_how_to_change_it():
    engine = FakeEngine()
    Cluster(2, name="c", engine=engine).up()
    with pytest.raises(ClusterError, match=golden(1)) as caught:
        Cluster(3, name="c", engine=engine, cpus=1.5).up()
    assert "lab down" in caught.value.hint


def test_a_run_without_a_cluster_makes_one_of_the_size_it_needs_and_removes_it():
    engine = FakeEngine({0: [prints("hello\n"), exits()]})
    result = Cluster(name="c", engine=engine).run(SCRIPT, nodes=2, nproc_per_node=2)
    assert (result.passed, len(result.ranks), result.ranks[0].log) == (True, 4, "hello\n")
    assert engine.clusters == {}
    assert engine.calls[-1] == "remove"


def test_a_run_keeps_its_cluster_where_asked():
    engine = FakeEngine()
    Cluster(name="c", engine=engine).run(SCRIPT, options=RunOptions(nodes=2, keep=True))
    assert engine.clusters["c"].run is None


def test_folders_may_be_given_as_text(tmp_path):
    result = Cluster(name="c", engine=FakeEngine()).run(SCRIPT, runs=f"{tmp_path}/runs", outputs=f"{tmp_path}/made")
    assert result.path.parent == tmp_path / "runs"


def test_a_cluster_of_a_dead_run_is_removed_with_a_word():
    engine, said = FakeEngine(), []
    engine.create("c", Shape(nodes=2), run="20200101-old", announce=lambda text: None)
    Cluster(name="c", engine=engine, announce=said.append).run(SCRIPT)
    assert said[0] == golden(1)


def test_a_run_that_is_refused_before_it_begins_leaves_no_record():
    engine = FakeEngine()
    with Cluster(2, name="c", engine=engine) as cluster:
        with pytest.raises(ClusterError, match=golden(1)):
            cluster.run(SCRIPT, nodes=3)
        with pytest.raises(UsageError, match="allowed: 1 to 4,096"):
            cluster.run(SCRIPT, nproc_per_node=5000)
    assert list_records() == []


def test_a_node_that_dies_before_the_run_leaves_a_record_that_says_so():
    engine = FakeEngine(answers={"node0": {"claim": [END]}})
    with pytest.raises(LabError, match=golden(1)):
        Cluster(1, name="c", engine=engine).run(SCRIPT)
    (record,) = list_records()
    assert record.result().verdict == "error"
    assert golden(1) in record.result().reason
    assert engine.clusters == {}


def test_channels_are_closed_whatever_happens():
    engine = FakeEngine({0: [END]})
    Cluster(1, name="c", engine=engine).run(SCRIPT)
    assert all(channel.closed for channel in engine.channels)


def test_an_error_while_the_cluster_is_made_leaves_no_record():
    engine = FakeEngine()

    def fail(call: str) -> None:
        if call == "create":
            raise ClusterError("no room")

    engine.failure = fail
    with pytest.raises(ClusterError, match="no room"):
        Cluster(1, name="c", engine=engine).run(SCRIPT)
    assert list_records() == []


def test_a_cluster_that_cannot_be_removed_after_its_run_is_named():
    engine, said = FakeEngine(), []

    def fail(call: str) -> None:
        if call == "remove" and "connect" in engine.calls:
            raise EngineUnavailable("it stopped answering")

    engine.failure = fail
    assert Cluster(1, name="c", engine=engine, announce=said.append).run(SCRIPT).passed
    assert said[-1].startswith(golden(1))
    assert "it stopped answering" in said[-1]
    assert golden(2) in said[-1]


def test_a_record_that_cannot_be_made_is_an_error_before_a_cluster_is_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    engine = FakeEngine()
    with pytest.raises(RecordError, match=golden(1)):
        Cluster(1, name="c", engine=engine).run(SCRIPT, runs=tmp_path / "file" / "runs")
    assert "create" not in engine.calls


def test_a_busy_cluster_is_refused_but_down_goes_ahead():
    engine = FakeEngine()
    cluster = Cluster(1, name="c", engine=engine)
    cluster.up()
    with ClusterLock("fake", "c").held("a run of something"):
        with pytest.raises(ClusterBusy, match=golden(1)):
            cluster.run(SCRIPT)
        assert cluster.busy()["purpose"] == golden(2)
        assert cluster.down().nodes == 1
    assert cluster.busy() is None


@pytest.mark.parametrize("name", ["", "Upper", "with space", "-x", "a" * 41, "ü", "a/b", ".."])
def test_a_name_that_no_cluster_may_have_is_refused(name: str):
    if name:
        with pytest.raises(UsageError, match=golden(1)):
            Cluster(name=name, engine=FakeEngine())
    else:
        assert Cluster(name=name, engine=FakeEngine()).name


def test_every_rank_that_failed_is_on_record_and_the_first_is_the_culprit():
    engine = FakeEngine({0: [], 1: [exits(1, error="ValueError: mine", raised=5.0)]})
    result = Cluster(2, name="c", engine=engine).run(SCRIPT, nodes=2)
    assert (result.verdict, result.exit_code) == ("failed", 1)
    assert result.culprit.rank == 1
    (record,) = list_records()
    assert record.result() == result


def test_an_engine_that_goes_away_in_mid_run_is_exit_code_3():
    engine = FakeEngine({0: [END]}, states={"node0": EngineUnavailable("it is gone")})
    result = Cluster(1, name="c", engine=engine).run(SCRIPT)
    assert (result.verdict, result.exit_code, result.reason) == ("error", 3, "it is gone")


# -- many runs


def many(count: int) -> list[Scenario]:
    return [replace(open_scenario(Path(SCRIPT)), name=f"s{i}", nodes=1) for i in range(count)]


def test_many_runs_share_one_cluster_that_is_removed_at_the_end():
    engine = FakeEngine()
    outcomes = Cluster(name="c", engine=engine).run_all(many(3))
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0]
    assert engine.calls.count("create") == 1
    assert engine.clusters == {}


def test_a_failure_does_not_keep_the_others_from_running():
    engine = FakeEngine({0: [exits(1)]})
    assert [outcome.exit_code for outcome in Cluster(name="c", engine=engine).run_all(many(3))] == [1, 1, 1]


def test_ctrl_c_ends_many_runs_and_not_only_the_one_that_runs():
    class Interrupt(Observer):
        def output(self, *arguments: object) -> None:
            raise KeyboardInterrupt

    engine = FakeEngine({0: [prints("x\n")]})
    outcomes = Cluster(name="c", engine=engine).run_all(many(3), observer=Interrupt())
    assert [outcome.exit_code for outcome in outcomes] == [130]
    assert engine.clusters == {}


def test_an_engine_that_goes_away_ends_many_runs():
    engine = FakeEngine({0: [END]}, states={"node0": EngineUnavailable("it is gone")})

    def fail(call: str) -> None:
        if "node_state" in engine.calls:
            raise EngineUnavailable("it is gone")

    engine.failure = fail
    outcomes = Cluster(name="c", engine=engine).run_all(many(3))
    assert [outcome.exit_code for outcome in outcomes] == [3]


def test_a_cluster_whose_node_died_is_made_anew_for_the_next_of_many_runs():
    engine = FakeEngine({0: [END]})
    died = []

    def ended(scenario: Scenario, outcome: object) -> None:
        info = engine.clusters["c"]
        engine.clusters["c"] = replace(info, nodes=(replace(info.nodes[0], state="exited"),))
        died.append(scenario.name)
        engine.acts = {}

    outcomes = Cluster(name="c", engine=engine).run_all(many(2), ended=ended)
    assert [outcome.exit_code for outcome in outcomes] == [1, 0]
    assert engine.calls.count("create") == 2


def shapes_made(engine: FakeEngine, cluster: Cluster, scenarios: list[Scenario]) -> list[Shape]:
    """The shapes of the clusters that are made while these run."""
    made, create = [], engine.create

    def note(name: str, shape: Shape, **more) -> ClusterInfo:
        made.append(shape)
        return create(name, shape, **more)

    engine.create = note  # type: ignore[method-assign]
    outcomes = cluster.run_all(scenarios)
    assert [outcome.exit_code for outcome in outcomes] == [0] * len(scenarios), outcomes
    return made


def test_the_own_cluster_of_a_scenario_with_limits_has_the_image_environment_and_gpus_that_were_asked_for():
    engine, (plain, picky) = FakeEngine(), many(2)
    picky = replace(picky, resources=Resources(memory_bytes=2**30), nproc_per_node=2)
    asked = {"image": "mine:1", "env": {"A": "1"}, "gpus": 2}
    shared, own = shapes_made(engine, Cluster(name="c", engine=engine, **asked), [plain, picky])
    assert (shared.image, shared.env, shared.gpus, shared.memory_bytes) == ("mine:1", {"A": "1"}, 2, None)
    assert own == replace(shared, memory_bytes=2**30, nproc_per_node=2)
    assert engine.clusters == {}


def test_the_own_cluster_of_a_scenario_is_like_the_one_that_is_up_but_for_what_the_scenario_says(tmp_path: Path):
    engine, (picky,) = FakeEngine(), many(1)
    theirs, its = Volume(source=tmp_path, target="/data"), Volume(source=tmp_path / "s", target="/more")
    picky = replace(picky, resources=Resources(cpus=1.0), volumes=(its,))
    up = Cluster(3, name="c", engine=engine, image="mine:1", env={"A": "1"}, cpus=4.0, volumes=(theirs,))
    up.up()
    (own,) = shapes_made(engine, Cluster(name="c", engine=engine), [picky])
    assert own == Shape(nodes=1, image="mine:1", env={"A": "1"}, cpus=1.0, volumes=(its, theirs))
    assert list(engine.clusters) == ["c"]


@pytest.fixture
def mounting(tmp_path: Path) -> Path:
    """A scenario that mounts a folder of its own, one beside it, and one that a link in its folder leads to."""
    (tmp_path / "s" / "own").mkdir()
    (tmp_path / "beside").mkdir()
    (tmp_path / "s" / "link").symlink_to("/etc")
    volumes = "[own:/own, ../beside:/data, link:/etc2:ro]"
    (tmp_path / "s" / "m.yaml").write_text(f"script: s.py\nvolumes: {volumes}\n")
    return tmp_path / "s" / "m.yaml"


def test_a_scenario_that_mounts_folders_from_outside_of_its_own_is_refused_and_says_which(mounting: Path):
    engine = FakeEngine()
    with pytest.raises(UsageError) as refused:
        Cluster(name="c", engine=engine).run(mounting)
    beside = mounting.parent.parent / "beside"
    assert golden(1, beside) in refused.value.message
    assert "--allow-volumes" in refused.value.hint
    assert "create" not in engine.calls
    (outcome,) = Cluster(name="c", engine=engine).run_all([open_scenario(mounting)])
    assert isinstance(outcome, UsageError)


def test_a_scenario_may_mount_what_was_allowed_and_what_is_in_its_folder(mounting: Path):
    engine = FakeEngine()
    assert Cluster(name="c", engine=engine).run(mounting, allow_volumes=True).passed
    mounting.write_text("script: s.py\nvolumes: [own:/own]\n")
    assert Cluster(name="c", engine=engine).run(mounting).passed


def test_what_goes_wrong_over_one_run_is_the_error_of_that_run_alone(monkeypatch: pytest.MonkeyPatch):
    from lab.run import outcome

    judge, judged = outcome.judge_evidence, []

    def fail_once(evidence: Evidence) -> Judgement:
        judged.append(evidence)
        if len(judged) == 2:
            raise TypeError("nobody foresaw it")
        return judge(evidence)

    monkeypatch.setattr(outcome, "judge_evidence", fail_once)
    first, second, third = Cluster(name="c", engine=FakeEngine()).run_all(many(3))
    assert first.exit_code == third.exit_code == 0
    assert isinstance(second, LabError)
    assert second.message == golden(1)
    results = [record.result() for record in list_records()]
    assert sorted((result.verdict, result.reason == second.message) for result in results) == [
        ("error", True), ("passed", False), ("passed", False),
    ]  # fmt: skip


def test_a_cluster_that_was_to_stay_and_has_lost_a_node_is_made_again_for_the_next_run():
    engine, told = FakeEngine(), list[str]()
    cluster = Cluster(3, name="c", engine=engine, announce=told.append)
    made, _ = cluster.up()
    engine.clusters["c"] = replace(made, nodes=(*made.nodes[:2], replace(made.nodes[2], state="paused")))
    assert cluster.run(SCRIPT, nodes=2).passed
    assert golden(1) in told
    assert cluster.info() == made


def test_nodes_that_were_stopped_stay_so_and_runs_that_need_them_are_refused_in_a_sentence():
    engine = FakeEngine()
    cluster = Cluster(3, name="c", engine=engine)
    cluster.up()
    assert [node.state for node in cluster.stop("node2", "1").nodes] == ["running", "stopped", "stopped"]
    with pytest.raises(ClusterUnfit, match=golden(1)) as refused:
        cluster.run(SCRIPT)
    assert golden(2) in refused.value.hint
    assert cluster.run(SCRIPT, nodes=1).passed
    assert [node.state for node in cluster.start("node1").nodes] == ["running", "running", "stopped"]
    assert cluster.run(SCRIPT, nodes=2).passed
    assert cluster.start().state == "ready"
    assert engine.calls.count("create") == 1


def test_up_starts_the_nodes_that_were_stopped():
    engine = FakeEngine()
    cluster = Cluster(2, name="c", engine=engine)
    cluster.up()
    cluster.stop("node0", "node1")
    info, made = cluster.up()
    assert (info.state, made) == ("ready", False)


def test_nodes_are_stopped_while_a_run_has_the_cluster_but_not_while_it_is_made_or_removed():
    engine = FakeEngine()
    cluster = Cluster(2, name="c", engine=engine)
    cluster.up()
    lock = ClusterLock(engine.name, "c")
    with lock.held("a run of s"):
        assert cluster.stop("node1").nodes[1].state == "stopped"
    with lock.held("lab up", exclusive=True), pytest.raises(ClusterBusy, match=golden(1)):
        cluster.start("node1")


def test_a_node_that_a_cluster_does_not_have_is_refused_with_what_was_meant():
    engine = FakeEngine()
    with pytest.raises(ClusterUnfit, match=golden(1)):
        Cluster(name="c", engine=engine).stop("node0")
    cluster = Cluster(2, name="c", engine=engine)
    cluster.up()
    with pytest.raises(UsageError, match=golden(2)):
        cluster.stop("node0", "nde1")
    assert "stop" not in engine.calls


def test_a_cluster_that_turns_out_to_be_broken_is_made_again_for_the_run():
    engine, told = FakeEngine(answers={"node1": {"claim": [END]}}), list[str]()
    cluster = Cluster(2, name="c", engine=engine, announce=told.append)
    made, _ = cluster.up()
    remove = engine.remove

    def remove_and_mend(*words, **more):
        engine.answers.clear()
        return remove(*words, **more)

    engine.remove = remove_and_mend
    assert cluster.run(SCRIPT).passed
    assert golden(1) in told
    assert cluster.info() == made
    assert len(list_records()) == 1


def test_a_cluster_of_which_a_node_could_not_be_cleaned_is_made_again_for_the_run():
    left = Refused("", "node", "an earlier run left behind /var/lab/run")
    engine, told = FakeEngine(answers={"node0": {"claim": [left]}}), list[str]()
    create = engine.create

    def create_mended(*words, **more):
        if "connect" in engine.calls:
            engine.answers.clear()
        return create(*words, **more)

    engine.create = create_mended  # type: ignore[method-assign]
    outcomes = Cluster(name="c", engine=engine, announce=told.append).run_all(many(2))
    assert [outcome.exit_code for outcome in outcomes] == [0, 0]
    assert golden(1) in told
    assert engine.calls.count("create") == 2
    assert engine.clusters == {}
    assert len(list_records()) == 2


def test_a_cluster_that_stays_is_looked_at_before_each_of_many_runs():
    engine, told = FakeEngine(), list[str]()
    cluster = Cluster(2, name="c", engine=engine, announce=told.append)
    made, _ = cluster.up()

    def break_once(scenario: Scenario, outcome: object) -> None:
        if scenario.name == "s0":
            engine.clusters["c"] = replace(made, nodes=(replace(made.nodes[0], state="exited"), made.nodes[1]))

    outcomes = cluster.run_all(many(3), ended=break_once)
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0]
    assert told.count(golden(1)) == 1
    assert cluster.info() == made


def test_many_runs_go_on_when_only_what_held_the_nodes_of_one_was_killed():
    engine = FakeEngine({0: [END]}, states={"node0": EngineUnavailable("what held the nodes was killed")})
    outcomes = Cluster(name="c", engine=engine).run_all(many(2), ended=lambda *_: engine.acts.clear())
    assert [outcome.exit_code for outcome in outcomes] == [3, 0]


def test_a_cluster_is_made_with_the_packages_image_and_data_of_the_scenario_and_those_that_were_asked_for(
    tmp_path: Path,
):
    engine, shapes = FakeEngine(), []
    engine.failure = lambda call: (
        shapes.extend(info.shape for info in engine.find_quietly()) if call == "connect" else None
    )
    (tmp_path / "s" / "d").mkdir()
    (tmp_path / "s" / "s.yaml").write_text(
        "script: s.py\nrequirements: [a, 'b==1']\nimage: x:1\ndata: {own: d, other: d}\n"
    )
    cluster = Cluster(name="c", engine=engine, requirements=["b==2", "c"], data={"other": tmp_path})
    result = cluster.run("s/s.yaml")
    assert result.passed
    [shape] = shapes
    assert (shape.image, shape.requirements) == ("x:1", ("a", "b==2", "c"))
    assert shape.data == {"own": tmp_path / "s" / "d", "other": tmp_path}
    assert "b==2" in (result.path / "scenario.yaml").read_text()


def test_a_cluster_that_is_up_does_if_its_nodes_have_the_packages_whoever_put_them_there():
    engine = FakeEngine()
    Cluster(2, name="c", engine=engine, requirements=["tqdm>=4"]).up()
    assert Cluster(name="c", engine=engine).run(needs("torch", "tqdm>=4")).passed
    assert "find_missing" not in engine.calls  # it was made for that
    engine.packages["tqdm"] = "4.6"
    assert Cluster(name="c", engine=engine).run(needs("tqdm", "torch>=2")).passed
    assert Cluster(name="c", engine=engine, requirements=["tqdm"]).up()[1] is False
    with pytest.raises(ClusterError, match=golden(1)) as refused:
        Cluster(name="c", engine=engine).run(needs("accelerate", "torch<2"))
    assert refused.value.exit_code == 2
    assert "--requirements" in refused.value.hint
    with pytest.raises(ClusterError, match=golden(2)):
        Cluster(name="c", engine=engine, requirements=["accelerate"]).up()


def needs(*requirements: str) -> Scenario:
    return replace(open_scenario(Path(SCRIPT)), extra={"requirements": requirements})


def test_of_many_runs_one_with_packages_gets_a_cluster_of_its_own_and_the_others_share_one():
    engine = FakeEngine()
    Cluster(name="c", engine=engine, image="x:1").run_all([needs(), needs("tqdm"), needs()])
    assert engine.calls.count("create") == 2
    assert engine.clusters == {}


def test_data_outside_of_its_folder_is_not_for_a_scenario_to_name(tmp_path: Path):
    (tmp_path / "d").mkdir()
    (tmp_path / "s" / "s.yaml").write_text("script: s.py\ndata: {mine: ../d}\n")
    with pytest.raises(UsageError, match=golden(1)):
        Cluster(name="c", engine=FakeEngine()).run("s/s.yaml")
    assert Cluster(name="c", engine=FakeEngine()).run("s/s.yaml", allow_volumes=True).passed
    assert Cluster(name="c", engine=FakeEngine(), data={"mine": "d"}).run("s/s.yaml").passed


@pytest.mark.parametrize(
    ("data", "message"),
    [({"a/b": "."}, "found the name 'a/b'"), ({"a": "absent"}, "does not exist"), ({"a": SCRIPT}, "is not a folder")],
)
def test_data_that_cannot_be_is_refused(data: dict[str, str], message: str):
    with pytest.raises(UsageError, match=message):
        Cluster(name="c", engine=FakeEngine(), data=data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": "soon"}, "timeout_s: found 'soon'; allowed: a duration"),
        ({"cold": "yes"}, "cold: found 'yes'; allowed: True or False"),
        ({"nodes": "2"}, "nodes: found '2'; allowed: a whole number"),
        ({"trace_values": True}, "trace_values: found True; allowed: a whole number"),
        ({"args": "--lr 1"}, "args: found '--lr 1'; allowed: a list"),
    ],
)
def test_an_option_of_another_type_is_refused_in_a_sentence(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        Cluster(name="c", engine=FakeEngine()).run(SCRIPT, **options)


def test_quantities_may_be_given_as_text():
    cluster = Cluster(name="c", engine=FakeEngine(), memory_bytes="1GiB")
    assert cluster.slot.asked["memory_bytes"] == 2**30
    assert RunOptions(timeout_s="5s").timeout_s == 5.0
    with pytest.raises(TypeError, match="did you mean 'timeout_s'"):
        cluster.run(SCRIPT, timeout="5s")


@pytest.mark.features
def test_methods_of_features_are_offered_for_completion():
    assert {"run", "fault", "heal", "call", "stop"} <= {*dir(Cluster(name="c", engine=FakeEngine()))}
