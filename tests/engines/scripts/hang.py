"""Ranks that never come to an end. Argument: the way."""

import sys
import threading
import time

import torch
import torch.distributed as dist

from lab import note


def everybody_sleeps(rank):
    time.sleep(3600)


def rank_1_never_comes(rank):
    if rank == 1:
        time.sleep(3600)
    dist.all_reduce(torch.ones(1))


def rank_1_computes_for_ever(rank):
    if rank == 1:
        matrix = torch.ones(64, 64)
        while True:
            matrix = torch.tanh(matrix @ matrix)
    dist.all_reduce(torch.ones(1))


def rank_1_computes_in_a_thread(rank):
    if rank == 1:
        worker = threading.Thread(target=rank_1_computes_for_ever, args=(1,), daemon=True)
        worker.start()
        worker.join()
    dist.all_reduce(torch.ones(1))


def rank_1_prints_its_results(rank):
    while rank == 1:
        print("accuracy 0.9", flush=True)
        time.sleep(0.1)
    dist.all_reduce(torch.ones(1))


def rank_1_broadcasts_after_many_calls(rank):
    values = torch.full((256,), 1 / 3)
    for _ in range(300):
        dist.all_reduce(values.clone())
    if rank == 1:
        dist.broadcast(values, src=0)
    else:
        dist.all_reduce(values)


def rank_1_waits_for_a_lock(rank):
    if rank == 1:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    dist.all_reduce(torch.ones(1))


def rank_2_is_in_another_collective(rank):
    if rank == 2:
        dist.broadcast(torch.ones(1), src=0)  # after the all_reduce of the others, by mistake
    else:
        dist.all_reduce(torch.ones(1))
    dist.barrier()


def rank_0_receives_what_nobody_sends(rank):
    if rank == 0:
        dist.recv(torch.empty(1), src=1)
    else:
        dist.barrier()


def nobody_sends(rank):
    dist.recv(torch.empty(1), src=(rank + 1) % dist.get_world_size())


def nobody(rank):
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.05)


def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    note("ready_at", time.time())
    globals()[sys.argv[1]](dist.get_rank())


if __name__ == "__main__":
    main()
