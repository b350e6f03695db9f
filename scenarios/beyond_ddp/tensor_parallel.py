"""Tensor parallel, two linears: the first cut by columns, the second by rows, one all_reduce in each direction.

Rank r holds HIDDEN / world_size of the hidden features. The first linear needs the whole input and makes its own hidden
features; ReLU works on each by itself; the second makes a part of every output, and the parts are added up. So forward
has one all_reduce behind the second linear, backward one in front of the first. All ranks see the same rows.
parallelize_module does the same with DTensors.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, FEATURES, HIDDEN_OF_A_RANK, OUTPUTS = 6, 4, 3, 2


class CopyToRanks(torch.autograd.Function):
    """Forward nothing; backward adds up what each rank's part wants of the input."""

    @staticmethod
    def forward(_ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(_ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class SumOverRanks(torch.autograd.Function):
    """Forward adds up the parts of the output; backward nothing, every part has the same gradient."""

    @staticmethod
    def forward(_ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_ctx, gradient):
        return gradient


def make_model(world_size):
    torch.manual_seed(1)
    hidden = HIDDEN_OF_A_RANK * world_size
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, OUTPUTS))


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    x = torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(2))

    alone, true_x = make_model(world_size), x.clone().requires_grad_()  # one process, the whole model
    true_output = alone(true_x)
    true_output.square().mean().backward()

    mine = slice(rank * HIDDEN_OF_A_RANK, (rank + 1) * HIDDEN_OF_A_RANK)  # my hidden features
    first, last = make_model(world_size)[0], make_model(world_size)[2]
    first_weight = first.weight.detach()[mine].requires_grad_()
    first_bias = first.bias.detach()[mine].requires_grad_()
    last_weight = last.weight.detach()[:, mine].clone().requires_grad_()
    own_x = x.clone().requires_grad_()

    hidden = nn.functional.linear(CopyToRanks.apply(own_x), first_weight, first_bias).relu()
    output = SumOverRanks.apply(hidden @ last_weight.T) + last.bias  # the bias only once
    output.square().mean().backward()

    mesh = init_device_mesh("cpu", (world_size,))
    by_torch = parallelize_module(make_model(world_size), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch_output = by_torch(x)
    torch_output.square().mean().backward()

    print(f"rank {rank}: weights {list(first_weight.shape)} and {list(last_weight.shape)} of mine, ", end="")
    print(f"{list(first.weight.shape)} and {list(last.weight.shape)} in all; output {output[0].tolist()}", flush=True)
    for name, ours, true in (
        ("output", output, true_output),
        ("first_weight_grad", first_weight.grad, alone[0].weight.grad[mine]),
        ("first_bias_grad", first_bias.grad, alone[0].bias.grad[mine]),
        ("last_weight_grad", last_weight.grad, alone[2].weight.grad[:, mine]),
        ("last_bias_grad", last.bias.grad, alone[2].bias.grad),
        ("input_grad", own_x.grad, true_x.grad),
        ("parallelize_module_output", torch_output, true_output),
        ("parallelize_module_first_grad", by_torch[0].weight.grad.to_local(), alone[0].weight.grad[mine]),
    ):
        note(f"{name}_difference", (ours - true).abs().max())
    note("first_weight_shape", first_weight.shape)
    note("last_weight_shape", last_weight.shape)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
