"""Ranks that wait for each other, in ways that stacks alone do not explain. Argument: the way."""

import sys
import time

import torch
import torch.distributed as dist

from lab import note


def rank_1_skips_a_call_of_its_loop(rank):
    for turn in range(4):
        if rank == 0 or turn < 3:
            dist.all_reduce(torch.ones(1))
        dist.broadcast(torch.ones(2), src=0)  # where rank 1 is too early


def two_ranks_disagree_at_once(rank):
    if rank == 0:
        dist.all_reduce(torch.ones(1))  # where rank 0 is
    else:
        dist.barrier()
    dist.all_reduce(torch.ones(1))


def three_ranks_are_in_three_places(rank):
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    elif rank == 1:
        dist.all_reduce(torch.ones(4))  # the same call at another line
    else:
        dist.reduce(torch.ones(4), dst=0)  # the odd one
    dist.barrier()


def rank_1_never_comes_to_backward(rank):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    loss = model(torch.ones(2, 4)).sum()
    note("ready_at", time.time())
    if rank == 1:
        time.sleep(3600)  # instead of backward
    loss.backward()


def rank_1_never_comes_and_others_hold_a_handle(rank):
    if rank == 1:
        time.sleep(3600)  # without a handle
    handle = dist.all_reduce(torch.ones(1), async_op=True)
    handle.wait()


def a_chain_over_two_groups(rank):
    pair = dist.new_group([1, 2])
    if rank == 2:
        time.sleep(3600)  # where the chain ends
    if rank == 1:
        dist.all_reduce(torch.ones(1), group=pair)
    dist.all_reduce(torch.ones(1))


def everybody_receives_first(rank):
    size = dist.get_world_size()
    dist.recv(torch.empty(1), src=(rank + 1) % size)  # nobody has sent
    dist.send(torch.ones(1), dst=(rank - 1) % size)


def rank_1_brings_fewer_rows_without_debugging(rank):
    dist.all_gather([torch.empty(3) for _ in range(3)], torch.ones(2 if rank == 1 else 3))  # uneven
    dist.barrier()


def all_is_well(rank):
    dist.all_reduce(torch.ones(8))
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    way = globals()[sys.argv[1]]
    if way is not rank_1_never_comes_to_backward:  # its DDP module, a process's first, imports for seconds
        note("ready_at", time.time())
    way(dist.get_rank())


if __name__ == "__main__":
    main()
