"""A pipeline, 1F1B: each rank is a stage with layers of its own, so that a larger world has a deeper model."""

import sys

import torch
import torch.distributed as dist
from layers import linear
from torch import nn

STEPS, WIDTH, LAYERS, ROWS, MICRO_BATCHES = int(sys.argv[1]), 512, 2, 64, 8
ON_DEVICE = "device" in sys.argv


def one_forward_one_backward(stage, stages):
    """What a stage does, in order."""
    ahead = min(MICRO_BATCHES, stages - 1 - stage)
    order = [("F", number) for number in range(ahead)]
    for number in range(MICRO_BATCHES - ahead):
        order += [("F", ahead + number), ("B", number)]
    return order + [("B", number) for number in range(MICRO_BATCHES - ahead, MICRO_BATCHES)]


def run_stage(module, rank, world_size, inputs):
    is_first, is_last = rank == 0, rank == world_size - 1
    held, sends = {}, []
    for action, number in one_forward_one_backward(rank, world_size):
        if action == "F":
            x = inputs[number].clone()
            if not is_first:
                dist.recv(x, src=rank - 1)
            x.requires_grad_(not is_first)
            output = module(x)
            if is_last:
                output = output.square().mean() / MICRO_BATCHES
            else:  # isend: a blocking send could wait for a stage that waits for us
                sends.append(dist.isend(output.detach(), dst=rank + 1))
            held[number] = x, output
        else:
            x, output = held.pop(number)
            gradient = None
            if not is_last:
                gradient = torch.empty_like(output)
                dist.recv(gradient, src=rank + 1)
            output.backward(gradient)
            if not is_first:
                sends.append(dist.isend(x.grad, dst=rank - 1))
    for send in sends:
        send.wait()


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (linear(WIDTH, ON_DEVICE), nn.Tanh())))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.001)
    inputs = torch.randn(MICRO_BATCHES, ROWS, WIDTH)
    for _ in range(STEPS):
        optimizer.zero_grad()
        run_stage(module, rank, world_size, inputs)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
