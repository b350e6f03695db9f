"""A communication hook: gradients travel as float16, half the bytes, and come back rounded.

The hook gets a bucket instead of DDP's all_reduce and returns a future with what is to become the gradient. PyTorch's
fp16_compress_hook is three lines; written out by hand it gives the same. float16 keeps about three decimal digits and
nothing above 65504: a gradient that large arrives as infinity.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from toy import ToyModel, fingerprint

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS = 8


def hand_made_hook(sent, bucket):
    """Halve the bytes, add up over ranks, and give back float32; `sent` is the list given to register_comm_hook."""
    half = bucket.buffer().to(torch.float16).div_(dist.get_world_size())
    sent.append(half.nbytes)
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].to(torch.float32))


def gradient_of(model, batch, scale=1.0):
    inputs, targets = batch
    (scale * nn.functional.mse_loss(model(inputs), targets)).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def gradient_by_ddp(hook, batch, scale=1.0, state=None):
    model = DistributedDataParallel(ToyModel())
    if hook is not None:
        model.register_comm_hook(state, hook)
    return gradient_of(model, batch, scale)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(2)
    whole = torch.randn(world_size * ROWS, 10, generator=random), torch.randn(world_size * ROWS, 5, generator=random)
    mine = tuple(part.chunk(world_size)[rank] for part in whole)

    alone = gradient_of(ToyModel(), whole)  # one process, the whole batch
    exact = gradient_by_ddp(None, mine)
    rounded = gradient_by_ddp(fp16_compress_hook, mine)
    sent = []
    by_hand = gradient_by_ddp(hand_made_hook, mine, state=sent)
    huge = gradient_by_ddp(fp16_compress_hook, mine, scale=1e9)

    error = ((rounded - alone).norm() / alone.norm()).item()
    print(f"rank {rank}: {exact.nbytes} bytes as float32, {sum(sent)} as float16", flush=True)
    print(f"rank {rank}: error {error:.1e}; loss times 1e9: {int(huge.isinf().sum())} are infinite", flush=True)
    note("bytes_float16", sum(sent))
    note("exact_difference", (exact - alone).abs().max())
    note("ratio", ((rounded * alone).sum() / alone.square().sum()).item())
    note("error_is_that_of_float16", 1e-6 < error < 1e-3)
    note("by_hand_is_the_same", torch.equal(by_hand, rounded))
    note("large_gradients_overflow", bool(huge.isinf().any()))
    note("fingerprint", fingerprint(rounded))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
