"""Who is the odd one out, from what PyTorch 2.13 says with TORCH_DISTRIBUTED_DEBUG=DETAIL."""

from __future__ import annotations

from lab.diagnosis.errors import find_deviating_call
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.wording import DeviatingCall

REST = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
    "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))"
)


def told(rank: int, mine: str, other: int, theirs: str) -> RankFacts:
    def says(who: int, call: str) -> str:
        return f"Rank {who} is running collective: CollectiveFingerPrint(SequenceNumber=0, {call}, {REST}"

    error = (
        f"RuntimeError: Detected mismatch between collectives on ranks. {says(rank, mine)}, but {says(other, theirs)}."
    )
    return RankFacts(rank=rank, node=f"node{rank}", local_rank=0, error=error)


FOUR = "OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float"
DOUBLE = "OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Double"
ROOT = "OpType=BROADCAST, TensorShape=[2, 3], TensorDtypes=Long"


def test_the_rank_that_differs_from_most_is_named_with_what_it_called():
    ranks = [told(0, FOUR, 1, DOUBLE), told(1, DOUBLE, 0, FOUR), told(2, FOUR, 1, DOUBLE)]
    assert find_deviating_call(ranks) == DeviatingCall(
        ranks=(1,), call="all_reduce of float64 [4]", common="all_reduce of float32 [4]"
    )


def test_one_message_is_enough_where_it_speaks_of_the_others_too():
    ranks = [told(0, FOUR, 2, ROOT), told(1, FOUR, 2, ROOT)]
    assert find_deviating_call(ranks) == DeviatingCall(
        ranks=(2,), call="broadcast of int64 [2, 3]", common="all_reduce of float32 [4]"
    )


def test_two_ranks_that_differ_from_each_other_blame_nobody():
    assert find_deviating_call([told(0, FOUR, 1, ROOT), told(1, ROOT, 0, FOUR)]) is None


def test_a_barrier_has_neither_shape_nor_dtype():
    barrier = "OpType=BARRIER"
    ranks = [told(0, barrier, 1, FOUR), told(2, barrier, 1, FOUR)]
    assert find_deviating_call(ranks) == DeviatingCall(ranks=(1,), call="all_reduce of float32 [4]", common="barrier")


def test_other_errors_say_nothing():
    error = "RuntimeError: Connection closed by peer [127.0.0.1]:4"
    assert find_deviating_call([RankFacts(rank=0, node="node0", local_rank=0, error=error)]) is None
