"""Training that goes on while the world shrinks or grows.

It is to be trained in worlds of certain sizes, one after the other. The steps are those of one process that nothing
disturbs, but for rounding: 2 ranks add other partial sums than 3.
"""

import sys

import torch.distributed as dist
from steps import Training, alone, checkpoint_path, train

try:
    from lab import note
except ImportError:
    note = print

MORE_STEPS = 10


def main():
    wanted = [int(word) for word in sys.argv[1:]]
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    training, path = Training(), checkpoint_path()
    training.resume(path)
    first = training.next
    if wanted[len(training.worlds) :][:1] == [world_size]:
        training.worlds.append(world_size)
    print(f"rank {rank} of {world_size} goes on at step {first}", flush=True)

    def before(step):
        if step == first + MORE_STEPS:
            note("at_work", step)

    train(training, lambda step: training.worlds == wanted and step > first + MORE_STEPS, path, before)
    note("world_size", world_size)
    note("went_on", first > 0)
    note("off_by", (training.weights() - alone(training.next)).abs().max().item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
