"""Gradient accumulation: no_sync() keeps DDP from reducing gradients until the last micro-batch.

Without it every backward sends all gradients, four times for four micro-batches, and only the last is used. The result
is the same; the traffic is not. A hook counts what is sent. forward belongs under no_sync() too: it is there that DDP
decides whether the coming backward reduces.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from toy import ToyModel, fingerprint

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

MICRO_BATCHES, ROWS, STEPS = 4, 5, 3  # micro-batches of one rank in a step, rows of one of them


def accumulated_gradients(micro_batches, use_no_sync):
    """The gradient at the end of each step, and how many bytes DDP sent in all."""
    model = DistributedDataParallel(ToyModel())
    sent = []

    def record(_, bucket):
        sent.append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, record)
    gradients = []
    for step in micro_batches:
        model.zero_grad()
        for number, (inputs, targets) in enumerate(step):
            last = number == len(step) - 1
            with model.no_sync() if use_no_sync and not last else nullcontext():
                (nn.functional.mse_loss(model(inputs), targets) / len(step)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    return torch.stack(gradients), sum(sent)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(2)
    shape = STEPS, world_size, MICRO_BATCHES, ROWS
    inputs, targets = torch.randn(*shape, 10, generator=random), torch.randn(*shape, 5, generator=random)
    mine = [list(zip(*step)) for step in zip(inputs[:, rank], targets[:, rank])]

    with_no_sync, bytes_with = accumulated_gradients(mine, use_no_sync=True)
    without, bytes_without = accumulated_gradients(mine, use_no_sync=False)

    alone = []  # one process: each step as one batch of all ranks' micro-batches
    for step in range(STEPS):
        model = ToyModel()
        nn.functional.mse_loss(model(inputs[step].flatten(0, 2)), targets[step].flatten(0, 2)).backward()
        alone.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    alone = torch.stack(alone)

    difference = (with_no_sync - alone).abs().max().item()
    print(f"rank {rank}: gradients differ by {difference:.1e} from one process; sent {bytes_with} bytes", flush=True)
    forgotten = (without - alone).abs().max().item()
    print(f"rank {rank}: without no_sync: by {forgotten:.1e}, {bytes_without} bytes", flush=True)
    note("difference", difference)
    note("difference_without_no_sync", forgotten)
    note("ratio", ((with_no_sync * alone).sum() / alone.square().sum()).item())
    note("bytes_sent", bytes_with)
    note("bytes_sent_without_no_sync", bytes_without)
    note("fingerprint", fingerprint(with_no_sync))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
