"""An example of each kind of finding, for the golden file of what is said of it."""

from __future__ import annotations

from lab.diagnosis import finding as f
from lab.diagnosis.finding import Facts, Finding, FindingKind, Kind
from lab.features.groups import findings as groups
from lab.features.launchers.findings import AttemptEnded, LauncherEnded, LauncherKind
from lab.features.links import connections
from lab.features.links import findings as links
from lab.features.links.findings import LinkKind
from lab.features.messages import findings as messages
from lab.features.mismatches import findings as mismatches
from lab.features.mpi.findings import BackendKind, BackendNamed
from lab.features.started.started import StartedByScript, StartedKind, ThreadEnded, WorkerFailed
from lab.features.stragglers import findings as stragglers
from lab.features.stragglers.findings import TimeKind
from lab.features.stragglers.timing import TimeShare
from lab.features.training import findings as training
from lab.features.training.findings import TrainingKind
from lab.features.values import findings as values
from lab.features.values.findings import ValueKind
from lab.trace.clashes import Misfit

_EXAMPLES: list[tuple[Kind, Facts]] = [
    (
        FindingKind.CUT_OFF,
        connections.Cut(
            link="node0 - node1",
            seconds=3.0,
            how="halves",
            parts=(("node0",), ("node1",)),
            links=(("node0", "node1"),),
            one_way=(("node0", "node1"),),
        ),
    ),
    (
        FindingKind.CUT_OFF,
        connections.Cut(
            link="node1 - node2",
            seconds=3.0,
            how="links",
            parts=(("node0", "node1", "node2"),),
            links=(("node1", "node2"),),
            one_way=(None,),
        ),
    ),
    (
        FindingKind.CUT_OFF,
        connections.Cut(
            ranks=(2,),
            seconds=0.9,
            how="nodes",
            nodes=("node2",),
            parts=(("node0", "node1"), ("node2",)),
            links=(("node0", "node2"), ("node1", "node2")),
        ),
    ),
    (
        FindingKind.CUT_OFF,
        links.Flap(
            ranks=(1,),
            others=(0, 2),
            step="all_reduce #2",
            lines=("train.py:10",),
            seconds=0.9,
            links=(("node0", "node1"), ("node1", "node2")),
            nodes=("node1",),
            bursts_s=(0.8999999999999999,),
            step_s=2.0,
        ),
    ),
    (
        FindingKind.OUTSIDE,
        f.Outside(ranks=(1,), what="node", node="node1", how="was disconnected from its network", disconnected=True),
    ),
    (FindingKind.OUTSIDE, f.Outside(ranks=(1,), what="node", node="node1", how="was paused")),
    (FindingKind.OUTSIDE, f.Outside(ranks=(1,), what="rank", node="node1", signal="SIGSTOP")),
    (
        FindingKind.CONNECTION_RESET,
        connections.ConnectionReset(others=(0,), link="node0 - node1", links=(("node0", "node1"),), refused=True),
    ),
    (
        FindingKind.CONNECTION_RESET,
        connections.ConnectionReset(others=(0,), link="node0 - node2", links=(("node0", "node2"),)),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            others=(0, 1, 2),
            lines=("train.py:3",),
            how="missing",
            address="10.0.0.1:29500",
            met=(0, 1, 2),
            world_size=4,
            run_size=3,
            missing=1,
            stuck=(0, 1, 2),
        ),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            others=(0, 1, 2),
            lines=("train.py:3",),
            how="same_rank",
            address="10.0.0.1:29500",
            sides=(f.Side(ranks=(1, 2), what="1"),),
        ),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            others=(0, 1, 2), lines=("train.py:3",), how="unanswered", address="10.0.0.1:29500", silent=(0, 1, 2)
        ),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            others=(0, 1, 2),
            lines=("train.py:3",),
            how="unconnected",
            address="10.0.0.1:29500",
            met=(0, 1, 2),
            world_size=3,
            run_size=3,
            stuck=(1,),
        ),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            ranks=(1,),
            others=(0, 2),
            lines=("train.py:3",),
            how="sizes",
            address="10.0.0.1:29500",
            sides=(f.Side(ranks=(0, 2), what="3"), f.Side(ranks=(1,), what="2")),
        ),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            ranks=(2,),
            others=(0, 1),
            lines=("train.py:3",),
            how="addresses",
            sides=(f.Side(ranks=(0, 1), what="at 10.0.0.1:29500"), f.Side(ranks=(2,), what="at 10.0.0.1:29999")),
            silent=(2,),
        ),
    ),
    (
        FindingKind.RENDEZVOUS,
        groups.Rendezvous(
            ranks=(2,),
            others=(0, 1),
            lines=("train.py:3",),
            how="beyond",
            address="10.0.0.1:29500",
            sides=(f.Side(ranks=(2,), what="2"),),
            met=(0, 1, 2),
            world_size=2,
            run_size=3,
            stuck=(0, 1, 2),
        ),
    ),
    (
        FindingKind.GROUPS,
        groups.GroupDestroyed(
            ranks=(1,),
            others=(0, 2),
            step="all_reduce #1",
            lines=("train.py:20", "train.py:24"),
            seconds=7.0,
            gone=(1,),
            entered=(0, 2),
            alone=False,
            destroyed_at=("train.py:20",),
            used_at=("train.py:24",),
            waited_s=7.0,
            did=(
                f.Activity(
                    rank=1,
                    what="stood",
                    stood=f.Stood(place=f.CodePlace(file="train.py", line=21, call="init_process_group")),
                ),
            ),
        ),
    ),
    (
        FindingKind.GROUPS,
        groups.GroupNotMade(
            ranks=(2,),
            others=(0, 1),
            step="new_group #1",
            lines=("train.py:15", "train.py:13"),
            seconds=7.999,
            members=(0, 1, 2),
            did=(f.Activity(rank=2, what="waited", call=f.CallFacts(rank=2, name="barrier #1", source="train.py:15")),),
            at=("train.py:13",),
        ),
    ),
    (
        FindingKind.GROUPS,
        groups.GroupsDiffer(
            ranks=(2,),
            others=(0, 1),
            step="new_group #1",
            lines=("train.py:14", "train.py:13"),
            number=1,
            sides=(f.Side(ranks=(2,), what="[0, 1, 2]", lines=("train.py:14",)),),
            common=f.Side(ranks=(0,), what="[0, 1]", lines=("train.py:13",)),
            slip="left_out",
        ),
    ),
    (
        FindingKind.MISMATCH,
        mismatches.Mismatch(
            ranks=(1,),
            number=1,
            odd_sides=(f.Side(ranks=(1,), what="broadcast", lines=("train.py:22",)),),
            sides=(f.Side(ranks=(0,), what="all_reduce"),),
        ),
    ),
    (
        FindingKind.MISMATCH,
        f.OddCall(
            ranks=(1,), lines=("train.py:4",), call="all_reduce of float64 [4]", common="broadcast of float32 [4]"
        ),
    ),
    (
        FindingKind.DTYPE,
        mismatches.Unequal(
            ranks=(0,),
            others=(1, 2),
            step="broadcast #2",
            lines=("train.py:20",),
            sides=(f.Side(ranks=(1, 2), what="float64 [1]"), f.Side(ranks=(0,), what="int64 [1]")),
            at=("train.py:20",),
        ),
    ),
    (
        FindingKind.SHAPE,
        training.Replicas(
            others=(0, 1),
            lines=("train.py:20",),
            how="parameters",
            at=("train.py:20",),
            sides=(f.Side(ranks=(0,), what="2 parameters"), f.Side(ranks=(1,), what="1 parameter")),
        ),
    ),
    (
        FindingKind.SHAPE,
        training.Replicas(
            ranks=(0,),
            others=(1, 2),
            lines=("train.py:20",),
            how="parameter",
            at=("train.py:20",),
            sides=(
                f.Side(ranks=(0,), what="a.weight (float32 [8, 4])"),
                f.Side(ranks=(1, 2), what="a.weight (float32 [4, 4])"),
            ),
            place=1,
        ),
    ),
    (
        FindingKind.SHAPE,
        mismatches.Unequal(
            ranks=(1,),
            others=(0, 2),
            step="all_reduce #1",
            lines=("train.py:9",),
            sides=(f.Side(ranks=(0, 2), what="float32 [2]"), f.Side(ranks=(1,), what="float32 [5]")),
            at=("train.py:9",),
        ),
    ),
    (
        FindingKind.REDUCE_OP,
        mismatches.Unequal(
            ranks=(1,),
            others=(0, 2),
            step="all_reduce #1",
            lines=("train.py:9",),
            sides=(f.Side(ranks=(0, 2), what="SUM"), f.Side(ranks=(1,), what="MAX")),
            at=("train.py:9",),
        ),
    ),
    (
        FindingKind.ROOT,
        mismatches.Unequal(
            ranks=(1,),
            others=(0, 2),
            step="reduce #1",
            lines=("train.py:9",),
            sides=(f.Side(ranks=(0, 2), what="root 0"), f.Side(ranks=(1,), what="root 2")),
            at=("train.py:9",),
        ),
    ),
    (
        FindingKind.SPLITS,
        mismatches.Unequal(
            others=(0, 1, 2),
            step="all_to_all_single #1",
            lines=("train.py:8",),
            sides=(
                f.Side(ranks=(1, 2), what="output [1, 1, 1], input [1, 1, 1]"),
                f.Side(ranks=(0,), what="output [1, 1, 1], input [1, 2, 1]"),
            ),
            misfits=(Misfit(giver=0, taker=1, rows=2, room=1),),
            at=("train.py:8",),
        ),
    ),
    (
        FindingKind.SLIPPED,
        mismatches.Slipped(
            ranks=(2,),
            others=(0, 1),
            step="send 1 → 2",
            lines=("train.py:7",),
            calls=1,
            call=f.CallFacts(rank=0, name="send", source="train.py:7"),
            turn=4,
        ),
    ),
    (
        FindingKind.UNMATCHED,
        messages.UnmatchedMessage(
            others=(0, 1),
            step="send 0 → 1 tag 7",
            lines=("train.py:12", "train.py:14"),
            seconds=7.0,
            how="passing_by",
            waits=(
                f.CallFacts(rank=0, name="send", source="train.py:12", direction="to", peer=1, tag=7),
                f.CallFacts(rank=1, name="recv", source="train.py:14", direction="from", peer=0, tag=8),
            ),
            waited_s=7.0,
        ),
    ),
    (
        FindingKind.UNMATCHED,
        messages.UnmatchedMessage(
            ranks=(0,),
            step="send 1 → 0",
            lines=("train.py:9",),
            seconds=4.998,
            how="neighbour",
            waits=(f.CallFacts(rank=0, name="recv", source="train.py:9", direction="from", peer=1),),
            waited_s=4.998,
            usual_distance=2,
            alike=(1, 2),
            group_size=3,
        ),
    ),
    (
        FindingKind.UNMATCHED,
        messages.UnmatchedMessage(
            ranks=(2,),
            step="send 2 → 3",
            lines=("train.py:12",),
            seconds=7.0,
            how="no_such_rank",
            waits=(f.CallFacts(rank=2, name="send", source="train.py:12", direction="to", peer=3),),
            last_rank=2,
            waited_s=7.0,
        ),
    ),
    (
        FindingKind.UNMATCHED,
        messages.UnmatchedMessage(
            ranks=(2,),
            others=(0,),
            step="send 0 → 2",
            lines=("train.py:10",),
            how="nobody_there",
            waits=(
                f.CallFacts(rank=2, name="recv", source="train.py:10", direction="from", peer=0),
                f.CallFacts(rank=0, name="barrier #5", source="train.py:10"),
            ),
            did=(f.Activity(rank=0, what="waited", call=f.CallFacts(rank=0, name="barrier #5", source="train.py:10")),),
        ),
    ),
    (
        FindingKind.DEADLOCK,
        f.Ring(
            others=(0, 1),
            step="all_reduce #1 in [0, 1]",
            lines=("train.py:20", "train.py:22"),
            seconds=7.0,
            cycle=(0, 1),
            waits=(
                f.CallFacts(rank=0, name="all_reduce #1 in [0, 1]", source="train.py:20"),
                f.CallFacts(rank=1, name="all_reduce #1 in [0, 1] (2nd)", source="train.py:22"),
            ),
            all_of="collectives",
        ),
    ),
    (
        FindingKind.DEADLOCK,
        messages.Strayed(
            ranks=(2,),
            others=(0, 1),
            step="send 2 → 0",
            lines=("train.py:2", "train.py:5", "train.py:6"),
            seconds=7.0,
            cycle=(0, 1, 2),
            wait=f.CallFacts(rank=2, name="send", source="train.py:2", direction="to", peer=0),
            usual=f.CallFacts(rank=2, name="send", source="train.py:2", direction="to", peer=1),
        ),
    ),
    (
        FindingKind.NEVER_ENTERED,
        f.Activities(
            ranks=(2,),
            others=(1,),
            lines=(":var/lab/r-n/work/train.py:37", "train.py:41"),
            did=(
                f.Activity(
                    rank=1, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=41, call="all_reduce"))
                ),
                f.Activity(
                    rank=2,
                    what="stood",
                    stood=f.Stood(place=f.CodePlace(file=":var/lab/r-n/work/train.py", line=37, call="")),
                ),
            ),
        ),
    ),
    (
        FindingKind.NEVER_ENTERED,
        f.MissedStep(
            ranks=(1,),
            others=(0,),
            step="all_reduce #2",
            waits=(f.CallFacts(rank=0, name="all_reduce #2"),),
            missing=(1,),
            did=(f.Activity(rank=1, what="called", call=f.CallFacts(rank=1, name="all_reduce")),),
        ),
    ),
    (
        FindingKind.LEFT_EARLY,
        f.FirstFailure(
            ranks=(1,),
            others=(0, 2),
            step="all_reduce #2",
            lines=("train.py:9", "train.py:41"),
            what="left",
            node="node1",
            code=0,
            progress=f.Progress(calls=1, name="all_reduce #1", source="train.py:9"),
            hits=(
                f.Hit(
                    name="all_reduce #2",
                    calls=(
                        f.CallFacts(
                            rank=0,
                            name="all_reduce",
                            source="train.py:41",
                            error="Connection closed by peer",
                            lost=True,
                        ),
                        f.CallFacts(
                            rank=2,
                            name="all_reduce",
                            source="train.py:41",
                            error="Connection closed by peer",
                            lost=True,
                        ),
                    ),
                ),
            ),
        ),
    ),
    (
        FindingKind.LEFT_EARLY,
        f.MissedStep(
            ranks=(2,),
            others=(0, 1),
            step="all_reduce #2",
            lines=("train.py:9", "train.py:41"),
            seconds=7.0,
            waits=(
                f.CallFacts(rank=0, name="all_reduce #2", source="train.py:41"),
                f.CallFacts(rank=1, name="all_reduce #2", source="train.py:41"),
            ),
            missing=(2,),
            did=(
                f.Activity(
                    rank=2, what="left", code=0, after=f.Progress(calls=1, name="all_reduce #1", source="train.py:9")
                ),
            ),
        ),
    ),
    (FindingKind.LEFT_EARLY, f.StoodApart(ranks=(0,), others=(1, 2), how="gone")),
    (
        FindingKind.WENT_ALONE,
        f.StoodApart(
            ranks=(2,), others=(0, 1), how="alone", place=f.CodePlace(file="train.py", line=9, call="barrier")
        ),
    ),
    (
        FindingKind.WENT_ALONE,
        f.WentAlone(
            ranks=(2,),
            others=(0, 1),
            step="all_reduce #2",
            lines=("train.py:41", "train.py:9"),
            node="node2",
            call=f.CallFacts(
                rank=2, name="all_reduce", source="train.py:41", error="Connection closed by peer", lost=True
            ),
            progress=f.Progress(calls=1, name="all_reduce #1", source="train.py:9"),
        ),
    ),
    (
        FindingKind.LATE,
        f.FirstFailure(
            ranks=(2,),
            others=(0,),
            what="late",
            node="node2",
            missed=f.Missed(
                rank=2, node="node2", how="came_late", victim=0, seconds=2.5, step="barrier #1", source="train.py:9"
            ),
        ),
    ),
    (
        FindingKind.ELSEWHERE,
        f.MissedStep(
            others=(0, 1, 2),
            step="all_reduce #3",
            lines=("train.py:42",),
            waits=(f.CallFacts(rank=2, name="all_reduce #3", source="train.py:42"),),
            missing=(0, 1),
            did=(
                f.Activity(
                    rank=0,
                    what="waited",
                    call=f.CallFacts(
                        rank=0,
                        name="all_reduce #1 in [0, 1]",
                        source="train.py:45",
                    ),
                ),
                f.Activity(
                    rank=1,
                    what="waited",
                    call=f.CallFacts(
                        rank=1,
                        name="all_reduce #1 in [0, 1]",
                        source="train.py:45",
                    ),
                ),
            ),
            several_groups=True,
        ),
    ),
    (
        FindingKind.ELSEWHERE,
        f.StoodApart(
            ranks=(2,),
            others=(0, 1),
            how="odd",
            stood=f.Stood(place=f.CodePlace(file="train.py", line=9, call="barrier")),
            common=f.Stood(place=f.CodePlace(file="train.py", line=4, call="all_reduce")),
        ),
    ),
    (
        FindingKind.FAILED,
        f.FirstFailure(ranks=(1,), what="failed", node="node1", end=f.End(how="raised", error="ValueError: late")),
    ),
    (
        FindingKind.FAILED,
        f.FirstFailure(ranks=(1,), what="nodes_lost", node="node1", nodes=("node1",), how="was killed"),
    ),
    (
        FindingKind.FAILED,
        WorkerFailed(
            others=(0, 1), worker=0, node="node0", end=f.End(how="raised", error="KeyError: 'x'"), started=(0, 1)
        ),
    ),
    (LauncherKind.LAUNCHER, LauncherEnded(nodes=("node0",), failed=True, signal="SIGKILL", begun=True)),
    (
        FindingKind.IN_FLIGHT,
        f.InFlight(others=(0,), step="all_reduce #1", lines=("train.py:9",), seconds=2.999, sources=("train.py:9",)),
    ),
    (
        FindingKind.NOT_KNOWN,
        f.MissedStep(
            others=(0, 2),
            step="all_reduce #3",
            lines=("train.py:42",),
            waits=(
                f.CallFacts(rank=0, name="all_reduce #3", source="train.py:42"),
                f.CallFacts(rank=2, name="all_reduce #3", source="train.py:42"),
            ),
            missing=(),
            unknown=(1,),
        ),
    ),
    (
        FindingKind.OWN_CODE,
        f.Activities(
            others=(0, 1, 2),
            lines=("train.py:37",),
            did=(
                f.Activity(rank=0, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=37, call=""))),
                f.Activity(rank=1, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=37, call=""))),
                f.Activity(rank=2, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=37, call=""))),
            ),
        ),
    ),
    (
        FindingKind.OWN_CODE,
        f.StoodApart(
            ranks=(0,), how="absent", stood=f.Stood(place=f.CodePlace(file="s.py", line=1, call="", source="print()"))
        ),
    ),
    (
        FindingKind.WAITING,
        f.Activities(
            ranks=(2,),
            others=(0, 1),
            lines=("train.py:43", "train.py:41"),
            did=(
                f.Activity(
                    rank=0, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=41, call="all_reduce"))
                ),
                f.Activity(
                    rank=1, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=41, call="all_reduce"))
                ),
                f.Activity(
                    rank=2, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=43, call="barrier"))
                ),
            ),
        ),
    ),
    (
        FindingKind.OUT_OF_TIME,
        f.Activities(
            others=(0, 1, 2),
            lines=("train.py:41", "train.py:37"),
            seconds=0.2,
            did=(
                f.Activity(rank=0, what="waited", call=f.CallFacts(rank=0, name="all_reduce #2", source="train.py:41")),
                f.Activity(rank=1, what="waited", call=f.CallFacts(rank=1, name="all_reduce #2", source="train.py:41")),
                f.Activity(rank=2, what="stood", stood=f.Stood(place=f.CodePlace(file="train.py", line=37, call=""))),
            ),
            longest_s=0.1999999999999993,
        ),
    ),
    (
        TrainingKind.COUNTS,
        training.PhaseCounts(
            ranks=(1,),
            others=(0,),
            lines=("train.py:4",),
            phase="forward",
            number=4,
            did=False,
            first=(1,),
            second=(0,),
            forwards={1: 6, 0: 6},
            backwards={1: 5, 0: 6},
        ),
    ),
    (
        TrainingKind.PARAMETER_ORDER,
        training.Replicas(
            ranks=(2,),
            others=(0, 1),
            lines=("train.py:20",),
            how="order",
            at=("train.py:20",),
            sides=(f.Side(ranks=(0, 1), what="a.weight"), f.Side(ranks=(2,), what="b.weight")),
            place=1,
        ),
    ),
    (
        TrainingKind.DIVERGED,
        training.Replicas(
            ranks=(0,),
            others=(1, 2),
            lines=("train.py:31", "train.py:20"),
            how="steps",
            at=("train.py:20",),
            stepped=(0,),
            stepped_at=("train.py:31",),
        ),
    ),
    (
        TrainingKind.DIVERGED,
        training.Replicas(
            ranks=(1,),
            others=(0, 2),
            lines=("train.py:20",),
            how="norm",
            at=("train.py:20",),
            sides=(f.Side(ranks=(0, 2), what="2"), f.Side(ranks=(1,), what="2.5")),
            place=2,
            parameter="b.weight",
            steps=2,
            unused_forward=True,
            no_exchange=True,
        ),
    ),
    (
        TrainingKind.DIVERGED,
        training.WeightsApart(
            ranks=(2,),
            others=(0, 1),
            lines=("train.py:18", "train.py:19"),
            reduced_at=("train.py:18",),
            steps=1,
            stepped_at=("train.py:19",),
            place=1,
            sides=(f.Side(ranks=(0, 1), what="1"), f.Side(ranks=(2,), what="2")),
        ),
    ),
    (
        ValueKind.WRONG_RESULT,
        values.WrongResult(
            others=(1, 0),
            step="all_reduce #1",
            lines=("train.py:9",),
            wrong_ranks=(1,),
            first=f.WrongElement(rank=1, tensor=0, tensors=1, element=0, reduces=True, got=7.0, expected=2.0),
            at=("train.py:9",),
        ),
    ),
    (
        ValueKind.CHANGED_BEFORE_WAIT,
        values.WrongResult(
            others=(0, 1),
            step="all_reduce #1",
            lines=("train.py:9",),
            wrong_ranks=(0, 1),
            first=f.WrongElement(rank=0, tensor=0, tensors=1, element=0, reduces=True, got=7.0, expected=2.0),
            at=("train.py:9",),
            handles=True,
        ),
    ),
    (
        ValueKind.NONFINITE,
        values.OddValues(
            ranks=(1,), others=(0, 2), step="all_reduce #2", lines=("train.py:9",), how="nan", at=("train.py:9",)
        ),
    ),
    (
        ValueKind.OUTLIER,
        values.OddValues(
            ranks=(2,),
            others=(0, 1),
            step="all_reduce #2",
            lines=("train.py:4",),
            how="other",
            at=("train.py:4",),
            steps=3,
        ),
    ),
    (
        ValueKind.OUTLIER,
        values.OddValues(
            ranks=(2,),
            others=(0, 1),
            step="all_reduce #3",
            lines=("train.py:9",),
            how="far",
            at=("train.py:9",),
            value=1.7e38,
            rest=0.3,
            usual=0.7,
            steps=2,
        ),
    ),
    (
        ValueKind.SAME_VALUES,
        values.SameValues(
            others=(0, 1, 2), step="all_reduce #1", lines=("train.py:9",), steps=2, op="all_reduce", at=("train.py:9",)
        ),
    ),
    (
        LinkKind.SLOW_LINK,
        links.SlowLink(
            others=(0, 1, 2),
            link="node1 - node2",
            measure="round_trip_s",
            worst=0.06,
            rest=0.0002,
            links=(("node1", "node2"),),
        ),
    ),
    (
        LauncherKind.ATTEMPT,
        AttemptEnded(ranks=(0,), number=0, world_size=2, reason="rank 0 (node0) raised ValueError: no at train.py:3"),
    ),
    (
        TimeKind.STRAGGLER,
        stragglers.Straggler(
            ranks=(1,),
            others=(0, 2),
            lines=("train.py:25",),
            seconds=0.8,
            each_s=0.4,
            share=0.3076923076923077,
            often=True,
            last=4,
            steps=4,
            least_s=0.09999999999999998,
            most_s=0.10000000000000009,
            turns=5,
        ),
    ),
    (
        TrainingKind.DDP_COUNTED,
        training.DdpStory(
            others=(0, 1),
            step="all_gather #1",
            lines=("train.py:20",),
            seconds=0.001,
            made_at="train.py:5",
            what=("all_gather of int64 [1]",),
            parameters=0,
        ),
    ),
    (
        TrainingKind.DDP_VERIFIED,
        training.DdpStory(
            others=(0, 1),
            step="broadcast #2",
            lines=("train.py:20",),
            seconds=0.001,
            made_at="train.py:5",
            what=("broadcast of int64 [12]",),
        ),
    ),
    (
        TrainingKind.DDP_STATE,
        training.DdpStory(
            others=(0, 1),
            step="broadcast #3",
            lines=("train.py:20",),
            seconds=0.001,
            made_at="train.py:5",
            count=1,
            bytes=320,
            with_buffers=True,
            parameters=4,
        ),
    ),
    (
        TrainingKind.DDP_BUFFERS,
        training.DdpStory(
            others=(0, 1),
            step="broadcast #4",
            lines=("train.py:20",),
            seconds=0.003,
            made_at="train.py:5",
            what=("broadcast of float32 [8]",),
            count=3,
            of=3,
        ),
    ),
    (
        TrainingKind.DDP_REDUCED,
        training.DdpStory(
            others=(0, 1),
            step="all_reduce #4",
            lines=("train.py:20",),
            seconds=0.01,
            made_at="train.py:5",
            what=("288 B of float32 (net1.weight, net1.bias, net2.weight, net2.bias)",),
            count=1,
            first=1,
            number=1,
        ),
    ),
    (
        TrainingKind.DDP_COMPRESSED,
        training.DdpStory(
            others=(0, 1),
            step="all_reduce #4",
            lines=("train.py:20",),
            seconds=0.01,
            made_at="train.py:5",
            bytes=144,
            before=288,
            dtype="float16",
        ),
    ),
    (
        TrainingKind.DDP_REBUILT,
        training.DdpStory(
            others=(0, 1),
            step="broadcast #5",
            lines=("train.py:20",),
            seconds=0.002,
            made_at="train.py:5",
            what=("broadcast of int32 [5]", "broadcast of int32 [2]"),
            count=2,
            before=1,
            number=2,
        ),
    ),
    (
        TrainingKind.DDP_OVERLAP,
        training.DdpStory(others=(0, 1), lines=("train.py:5",), made_at="train.py:5", step_s=0.01, single_bucket=True),
    ),
    (
        TrainingKind.DDP_UNUSED,
        training.DdpStory(
            others=(0, 1),
            step="all_reduce #5",
            lines=("train.py:20",),
            seconds=0.001,
            made_at="train.py:5",
            what=("all_reduce of int32 [4]",),
        ),
    ),
    (
        TrainingKind.DDP_OTHER,
        training.DdpStory(
            others=(0, 1),
            step="all_reduce #4",
            lines=("train.py:20",),
            seconds=0.02,
            made_at="train.py:5",
            what=("all_reduce by backward", "all_reduce by backward"),
            count=2,
        ),
    ),
    (
        TrainingKind.DDP_SILENT,
        training.DdpStory(others=(0, 1), lines=("train.py:5",), made_at="train.py:5", count=3, of=4),
    ),
    (
        TimeKind.TIME,
        stragglers.CriticalPath(
            others=(0, 1),
            lines=("train.py:12",),
            seconds=2.0,
            total_s=2.0,
            parts=(
                stragglers.PathPart(share=0.75, op="all_reduce", source="train.py:12", rank=1),
                stragglers.PathPart(share=0.25, op="all_reduce", source="train.py:12", rank=None),
            ),
        ),
    ),
    (
        TimeKind.TIME,
        stragglers.TimeShares(
            others=(0,),
            seconds=0.0,
            shares=(
                TimeShare(
                    rank=0,
                    total=1.000000001,
                    own=0.700000001,
                    waiting=0.0,
                    communicating=0.0,
                    unknown=0.30000000000000004,
                ),
            ),
        ),
    ),
    (TimeKind.ACCOUNT, stragglers.Account()),
    (StartedKind.THREAD, ThreadEnded(others=(1,), raised=f.ThreadError(error="OSError: a"), count=2)),
    (BackendKind.BACKEND, BackendNamed(others=(1,), lines=("a.py:3",), named="gloo", backend="mpi", at=("a.py:3",))),
    (StartedKind.STARTED, StartedByScript(aside=2, aside_workers=(0,), any_ranks=False)),
    (StartedKind.STARTED, StartedByScript(others=(0, 1, 2), by_worker={0: (0, 1), 1: (2,)})),
]
EXAMPLES = [Finding(kind=kind, facts=facts) for kind, facts in _EXAMPLES]
