"""A gather with a gradient for tensors whose sizes differ from rank to rank, along any dimension.

all_gather wants the same shape everywhere. So the sizes are gathered first, every rank pads to the longest, and a mask
removes the padding of all of them again. Backward goes the same way back: with the sum over ranks or without it, then
this rank's part. Rank r holds r + 1 entries along the dimension.
"""

import torch
import torch.distributed as dist
from single_process import compare
from torch import nn

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own, dim, reduce_gradients):
        dim = dim % own.dim()
        size = torch.tensor([own.size(dim)])
        sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
        dist.all_gather(sizes, size)
        sizes = torch.cat(sizes)
        longest = int(sizes.max())

        padding = [0, 0] * (own.dim() - 1 - dim) + [0, longest - own.size(dim)]  # counted from the last dimension
        padded = nn.functional.pad(own, padding).contiguous()
        gathered = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, padded)

        is_data = (torch.arange(longest) < sizes[:, None]).flatten()
        ctx.dim, ctx.sizes, ctx.reduce_gradients = dim, sizes.tolist(), reduce_gradients
        return torch.cat(gathered, dim).index_select(dim, is_data.nonzero().flatten())

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        if ctx.reduce_gradients:
            dist.all_reduce(gradient)
        return gradient.split(ctx.sizes, ctx.dim)[dist.get_rank()], None, None


class GatherVariableLength(nn.Module):
    """All ranks' tensors, one behind the other along `dim`, with a gradient.

    reduce_gradients: add what all ranks computed (what DDP's averaging wants), or keep what this rank computed.
    """

    def __init__(self, dim=0, reduce_gradients=True):
        super().__init__()
        self.dim, self.reduce_gradients = dim, reduce_gradients

    def forward(self, own):
        return _Gather.apply(own, self.dim, self.reduce_gradients)


def loss_of(everything):
    """Every entry matters, each in its own way, and depends on all others: a wrong order or lost padding shows."""
    place = torch.linspace(-1, 1, everything.numel()).reshape(everything.shape)
    return torch.logsumexp((everything * place).flatten(), 0) + (everything * place).sum() ** 2


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    sizes = [r + 1 for r in range(world_size)]

    for dim in (0, 1, -1):
        shape = [2, 3, 4]
        shape[dim] = sum(sizes)
        whole = torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_()
        loss_of(whole).backward()  # the single process: everything in one tensor

        own = whole.detach().split(sizes, dim)[rank].clone()
        for reduce_gradients in (False, True):
            own.grad = None
            gathered = GatherVariableLength(dim, reduce_gradients)(own.requires_grad_())
            loss_of(gathered).backward()
            ratio, rest = compare(own.grad, whole.grad.split(sizes, dim)[rank])
            print(
                f"rank {rank}: dim {dim}: mine {list(own.shape)}, gathered {list(gathered.shape)}, "
                f"reduce_gradients={reduce_gradients}: {ratio:.4f} times the single-process gradient",
                flush=True,
            )
            name = f"dim {dim}, {'sum' if reduce_gradients else 'own'}"
            note(f"{name}: ratio", ratio)
            note(f"{name}: rest", rest)
            note(f"{name}: same_numbers", torch.equal(gathered, whole))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
