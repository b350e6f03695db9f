"""Every collective of torch.distributed once, each on a line that ends with a label; needs three ranks."""

import datetime as dt

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo", timeout=dt.timedelta(seconds=60))
rank, world_size = dist.get_rank(), dist.get_world_size()
assert world_size == 3


def full(value, count=4):
    return torch.full((count,), float(value))


def empty(count=4):
    return full(-1, count)


def several():
    return [empty(2) for _ in range(world_size)]


dist.all_reduce(full(rank))  # all_reduce
dist.all_reduce(full(rank), op=dist.ReduceOp.MAX, async_op=True).wait()  # all_reduce async
dist.all_reduce(full(rank + 1), op=dist.ReduceOp.PRODUCT, async_op=True).get_future().wait()  # all_reduce future
dist.broadcast(full(rank), src=1)  # broadcast
dist.reduce(full(rank), dst=2)  # reduce
dist.all_gather(several(), full(rank, 2))  # all_gather
dist.all_gather_into_tensor(empty(6), full(rank, 2))  # all_gather_into_tensor
dist.gather(full(rank, 2), several() if rank == 1 else None, dst=1)  # gather
dist.scatter(empty(2), [full(10 * i, 2) for i in range(world_size)] if rank == 2 else None, src=2)  # scatter
dist.reduce_scatter(empty(2), [full(rank + i, 2) for i in range(world_size)])  # reduce_scatter
dist.reduce_scatter_tensor(empty(2), torch.cat([full(rank + i, 2) for i in range(world_size)]))  # reduce_scatter_tensor
dist.all_to_all(several(), [full(10 * rank + i, 2) for i in range(world_size)])  # all_to_all
dist.all_to_all_single(empty(3), torch.arange(3.0) + 10 * rank)  # all_to_all_single
sizes = [1, 2, 3]
dist.all_to_all_single(  # all_to_all_single split
    empty(3 * sizes[rank]),
    torch.arange(6.0),
    output_split_sizes=[sizes[rank]] * 3,
    input_split_sizes=sizes,
)

right, left = (rank + 1) % 3, (rank - 1) % 3
if rank == 0:
    dist.send(full(7), 1, tag=3)  # send
    dist.isend(full(8), 1).wait()  # isend
elif rank == 1:
    dist.recv(empty(), 0, tag=3)  # recv
    dist.recv(empty())  # recv from any
received = empty()
exchange = [dist.P2POp(dist.isend, full(rank), right), dist.P2POp(dist.irecv, received, left)]
for work in dist.batch_isend_irecv(exchange):  # batch
    work.wait()
assert received[0] == left

dist.barrier()  # barrier
if dist.get_backend() == "gloo":  # torch lets no other one do it
    dist.monitored_barrier(timeout=dt.timedelta(seconds=60))  # monitored_barrier
objects = [None] * world_size
dist.all_gather_object(objects, {"rank": rank})  # all_gather_object
assert objects[1] == {"rank": 1}
with dist._coalescing_manager():  # coalesced
    dist.all_reduce(full(rank, 1))
    dist.all_reduce(full(2 * rank, 3))
dist.all_reduce_coalesced([full(rank, 1), full(2 * rank, 3)])  # all_reduce_coalesced
assert functional.all_reduce(full(rank), "sum", dist.group.WORLD)[0] == 3  # functional

pair = dist.new_group([1, 2])
alone = dist.new_group([0])
if rank > 0:
    dist.broadcast(full(rank), src=2, group=pair)  # broadcast in a pair
    dist.all_reduce(full(rank), group=pair)  # all_reduce in a pair
else:
    dist.all_reduce(full(rank), group=alone)  # all_reduce alone

dist.broadcast(torch.tensor([1, -2, 2**40]) * (rank + 1), src=0)  # integers
dist.broadcast(torch.tensor([[True, False]]), src=0)  # booleans
dist.broadcast(torch.tensor([1.5, -2.25], dtype=torch.bfloat16), src=0)  # bfloat16
dist.broadcast(torch.tensor([0.1, 1e300], dtype=torch.float64), src=0)  # doubles
dist.broadcast(torch.tensor([0.1, float("nan"), float("inf"), -float("inf")]), src=0)  # not finite
dist.broadcast(torch.tensor([1.5 - 2j, 3j]), src=0)  # complex
dist.broadcast(torch.arange(12.0).reshape(3, 4).t().clone(memory_format=torch.preserve_format), src=0)  # transposed
dist.broadcast(torch.arange(1000.0), src=0)  # summary
dist.broadcast(torch.arange(10_000.0), src=0)  # sample
dist.broadcast(torch.empty(0), src=0)  # nothing
sparse = torch.sparse_coo_tensor([[rank]], [1.0], (world_size,))
dist.all_reduce(sparse)  # sparse
dist.barrier()  # last
try:  # gloo's barrier waits for all that is not cleared away yet: after this it would now and then raise this error
    dist.all_reduce(full(rank), op=dist.ReduceOp.BAND)  # refused
    raise AssertionError("there are no bitwise operations on floats")
except RuntimeError as error:
    print("refused:", error)
dist.destroy_process_group()
