"""BatchNorm under DDP: every rank normalises by its own batch, and rank 0's running statistics win.

The parameters are averaged by gradients, the buffers (running mean, running variance) are not: before each forward DDP
broadcasts rank 0's, then every rank updates them with its own batch. So after a step the ranks differ again, and what
rank 0 saves has seen rank 0's data only. As each rank normalised by its own batch, training is not what one process
with the whole batch does: sync_batch_norm shows what is.
"""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)  # a new name since 2.13

ROWS, FEATURES, STEPS, MOMENTUM = 6, 4, 3, 0.1


def whole_batch(step, world_size):
    """The batches of all ranks: [rank, row, feature]. Rank r's data lie around r."""
    random = torch.Generator().manual_seed(step)
    shift = torch.arange(world_size, dtype=torch.float32)[:, None, None]
    return torch.randn(world_size, ROWS, FEATURES, generator=random) + shift


def train(rank, world_size, broadcast_buffers):
    """The running mean after every step."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.BatchNorm1d(FEATURES, momentum=MOMENTUM), nn.Linear(FEATURES, 1))
    ddp = DistributedDataParallel(model, broadcast_buffers=broadcast_buffers)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    history = []
    for step in range(STEPS):
        optimizer.zero_grad()
        ddp(whole_batch(step, world_size)[rank]).square().mean().backward()
        optimizer.step()
        history.append(model[0].running_mean.clone())
    return history


def expected(rank, world_size, broadcast_buffers):
    """The same by arithmetic: the old mean, rank 0's or one's own, and a tenth of the batch's."""
    means = torch.zeros(world_size, FEATURES)
    history = []
    for step in range(STEPS):
        if broadcast_buffers:
            means = means[0].expand(world_size, FEATURES)
        means = (1 - MOMENTUM) * means + MOMENTUM * whole_batch(step, world_size).mean(dim=1)
        history.append(means[rank])
    return history


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    for name, broadcast_buffers in {"broadcast": True, "own": False}.items():
        ours = torch.stack(train(rank, world_size, broadcast_buffers))
        true = torch.stack(expected(rank, world_size, broadcast_buffers))
        means = [f"{mean:.3f}" for mean in ours.mean(dim=1).tolist()]
        print(f"rank {rank}: broadcast_buffers={broadcast_buffers}: running mean after each step {means}", flush=True)
        note(f"{name}_running_mean", ours)
        note(f"{name}_difference_from_arithmetic", (ours - true).abs().max())

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Ranks differ, as their data do; with the broadcast by one step's tenth only, without it by all steps' tenths."""
    for result in results[1:]:
        apart = {}
        for name in ("broadcast_running_mean", "own_running_mean"):
            mine, first = result["notes"][name][-1], results[0]["notes"][name][-1]
            apart[name] = sum(a - b for a, b in zip(mine, first)) / len(mine)
        near, far = apart["broadcast_running_mean"], apart["own_running_mean"]
        assert far > 2 * near > 0, f"rank {result['rank']}: running means apart by {near} with broadcast, {far} without"


if __name__ == "__main__":
    main()
