"""A pipeline by send and recv: each rank is a stage, and works in the order 1F1B: one forward, one backward.

A stage first takes in as many micro-batches as there are stages behind it, then alternates, then finishes the backwards
that are left. So it never holds the activations of more than a few micro-batches, however many there are. The gradients
add up over micro-batches to those of one process with the whole model and the whole batch.
"""

import torch
import torch.distributed as dist
from torch import nn

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

MICRO_BATCHES, ROWS, WIDTH = 4, 3, 5


def make_stages(count):
    """All stages; a rank uses only its own."""
    torch.manual_seed(1)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def one_forward_one_backward(stage, stages):
    """F0, F1, ..., B0, ...: what a stage does, in order."""
    ahead = min(MICRO_BATCHES, stages - 1 - stage)
    order = [("F", number) for number in range(ahead)]
    for number in range(MICRO_BATCHES - ahead):
        order += [("F", ahead + number), ("B", number)]
    return order + [("B", number) for number in range(MICRO_BATCHES - ahead, MICRO_BATCHES)]


def run_stage(module, rank, world_size, inputs, targets):
    """Work off the schedule; gradients stay in the module.

    Returns what was done, in order, and how many micro-batches' activations were held at most.
    """
    is_first, is_last = rank == 0, rank == world_size - 1
    held, sends, done, most_held = {}, [], [], 0
    for action, number in one_forward_one_backward(rank, world_size):
        if action == "F":
            x = inputs[number].clone()
            if not is_first:
                dist.recv(x, src=rank - 1)
            x.requires_grad_(not is_first)
            output = module(x)
            if is_last:
                output = nn.functional.mse_loss(output, targets[number]) / MICRO_BATCHES
            else:  # isend: a blocking send could wait for a stage that waits for us
                sends.append(dist.isend(output.detach(), dst=rank + 1))
            held[number] = x, output
            most_held = max(most_held, len(held))
        else:
            x, output = held.pop(number)
            gradient = None
            if not is_last:
                gradient = torch.empty_like(output)
                dist.recv(gradient, src=rank + 1)
            output.backward(gradient)
            if not is_first:
                sends.append(dist.isend(x.grad, dst=rank - 1))
        done.append(f"{action}{number}")
    for send in sends:
        send.wait()
    return done, most_held


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(2)
    inputs = torch.randn(MICRO_BATCHES, ROWS, WIDTH, generator=random)
    targets = torch.randn(MICRO_BATCHES, ROWS, WIDTH, generator=random)

    mine = make_stages(world_size)[rank]
    order, most_held = run_stage(mine, rank, world_size, inputs, targets)

    alone = make_stages(world_size)  # one process: all stages, all micro-batches as one batch
    nn.functional.mse_loss(nn.Sequential(*alone)(inputs.flatten(0, 1)), targets.flatten(0, 1)).backward()
    true = alone[rank][0].weight.grad

    difference = (mine[0].weight.grad - true).abs().max().item()
    print(f"stage {rank}: {'  ' * rank}{' '.join(order)}   gradient {difference:.1e} from one process", flush=True)
    note("order", order)
    note("difference", difference)
    note("ratio", ((mine[0].weight.grad * true).sum() / true.square().sum()).item())
    note("bias_difference", (mine[0].bias.grad - alone[rank][0].bias.grad).abs().max())
    note("activations_held", most_held)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
