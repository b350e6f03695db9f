"""A large model in buckets: DDP reduces gradients in buckets of about bucket_cap_mb while backward still runs.

The model is Linear(10, n) - Linear(n, n) - Linear(n, 5). Gradients become ready from the last layer to the first. The
first backward uses one order (that of the parameters, reversed); then DDP rebuilds its buckets in the order in which
the gradients really came. A hook sees each bucket as it is sent. How they are cut changes nothing in the result.

A parameter is never cut, so a bucket may be much larger than it was asked to be.

n = 1000 by default, 4 MB of parameters. `--hidden 10000` is the published size, 400 MB of parameters: with gradients,
buckets and the comparison with one process about 3.4 GB a rank at the peak.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from toy import fingerprint, weights_of

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, STEPS = 8, 3  # rows of one rank in a step


def make_model(hidden):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 5))


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def train_in_buckets(hidden, bucket_cap_mb, batches):
    """The weights at the end, and the bytes of every bucket, by step."""
    model = DistributedDataParallel(make_model(hidden), bucket_cap_mb=bucket_cap_mb)
    sent = []

    def record(_, bucket):
        if bucket.index() == 0:
            sent.append([])
        sent[-1].append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, record)
    train(model, batches)
    return weights_of(model), sent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=1000)
    hidden = parser.parse_args().hidden
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(2)
    inputs = torch.randn(world_size * ROWS, 10, generator=random)
    whole = [(inputs, torch.randn(world_size * ROWS, 5, generator=random))] * STEPS
    mine = [(inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]) for inputs, targets in whole]

    small_buckets, sent = train_in_buckets(hidden, 1, mine)
    alone = make_model(hidden)
    train(alone, whole)  # one process, the whole batch
    difference = (small_buckets - weights_of(alone)).abs().max().item()
    one_bucket, sent_in_one = train_in_buckets(hidden, 10_000, mine)
    if rank == 0:
        for step, sizes in enumerate(sent):
            print(f"step {step}: bucket_cap_mb=1 sends {len(sizes)} buckets of {sizes} bytes")
        print(f"step {STEPS - 1}: bucket_cap_mb=10000 sends {sent_in_one[-1]} bytes", flush=True)
    print(f"rank {rank}: weights at most {difference:.1e} from one process", flush=True)

    note("difference", difference)
    note("difference_by_buckets", (small_buckets - one_bucket).abs().max())
    note("bytes_of_each_step", [sum(sizes) for sizes in sent])
    note("buckets_of_each_step", [len(sizes) for sizes in sent])
    note("buckets_with_a_large_cap", [len(sizes) for sizes in sent_in_one])
    note("fingerprint", fingerprint(small_buckets))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
