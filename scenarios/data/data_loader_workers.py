"""num_workers: who waits for the data.

With 0 the rank itself fetches each sample, then trains, then fetches again: the times add up. With n workers processes
fetch ahead while the rank trains; batch i comes from worker i % n, and the order stays that of the sampler. A sample
here takes 6 ms of waiting, as from a disk or a network; fetching that is computing would need cores as well. Starting
the workers takes time too: it is told apart from the rest of the epoch by looking at the clock at the first batch.
"""

import math
import time
import warnings

import torch
import torch.distributed as dist
from bars import bars
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores: these only wait
SAMPLES, BATCH = 96, 6  # of one rank, of one batch
FETCH_S, TRAIN_S = 0.006, 0.012  # seconds that a sample takes to fetch, that a batch takes to train on


class SlowSamples(Dataset):
    """Its own index, the number of the worker that fetched it (-1: the rank itself), and when it had been fetched."""

    def __len__(self):
        return SAMPLES * dist.get_world_size()

    def __getitem__(self, index):
        time.sleep(FETCH_S)
        worker = get_worker_info()
        return index, worker.id if worker else -1, time.monotonic()


def epoch(num_workers):
    """Seconds to the first batch and from there on; the indices; who fetched each batch; how many samples came early.

    Early is: fetched before the rank was done with the batch before theirs.
    """
    data = SlowSamples()
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, shuffle=False), num_workers=num_workers)
    indices, fetched_by, ahead, first, done = [], [], 0, None, -math.inf
    started = time.monotonic()
    for index, worker, fetched in loader:
        first = first or time.monotonic()
        ahead += (fetched < done).sum().item()
        time.sleep(TRAIN_S)  # stands for forward, backward and step on a device
        done = time.monotonic()
        indices += index.tolist()
        fetched_by.append(worker[0].item())
    return first - started, done - first, indices, fetched_by, ahead


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    slowest = {}
    for num_workers in (0, 1, 2, 4):
        dist.barrier()
        start_s, rest_s, indices, fetched_by, ahead = epoch(num_workers)
        slowest_rank = torch.tensor(rest_s)
        dist.all_reduce(slowest_rank, dist.ReduceOp.MAX)  # the others would wait for it in backward
        slowest[f"num_workers={num_workers}"] = slowest_rank.item()
        in_turn = [number % num_workers if num_workers else -1 for number in range(SAMPLES // BATCH)]
        note(f"fetched_in_turn_{num_workers}", fetched_by == in_turn)
        note(f"in_order_{num_workers}", indices == [rank + i * world_size for i in range(SAMPLES)])
        note(f"fetched_ahead_{num_workers}", ahead > 0)
        note(f"seconds_{num_workers}", rest_s)
        print(
            f"rank {rank}: num_workers={num_workers}: first batch after {start_s * 1000:.0f} ms, "
            f"{ahead} of {SAMPLES} samples fetched while the rank trained",
            flush=True,
        )
    if rank == 0:
        print("\n".join(bars(slowest)), flush=True)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Without workers the times add up: fetching and training cannot take less than their sum."""
    batches = SAMPLES // BATCH
    least = (batches - 1) * BATCH * FETCH_S + batches * TRAIN_S
    for result in results:
        got = result["notes"]["seconds_0"]
        assert got >= least, f"rank {result['rank']}: note seconds_0: expected at least {least}, got {got}"


if __name__ == "__main__":
    main()
