"""A rank that raises at the same step each time: restarts do not help, and they are counted."""

import os

import torch.distributed as dist
from steps import Training, checkpoint_path, train

BAD_STEP = 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def before(step):
        if (rank, step) == (1, BAD_STEP):
            raise ValueError(f"no such sample in step {step}")

    training, path = Training(), checkpoint_path()
    training.resume(path)
    print(
        f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}: rank {rank} goes on at step {training.next}", flush=True
    )
    train(training, lambda step: step > BAD_STEP, path, before)


if __name__ == "__main__":
    main()
