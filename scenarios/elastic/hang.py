"""A rank that hangs: torchrun sees a process that lives, and waits as long as that does."""

import time

import torch.distributed as dist
from steps import Training, checkpoint_path, train

BAD_STEP = 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def before(step):
        if (rank, step) == (1, BAD_STEP):
            time.sleep(3600)

    train(Training(), lambda step: step > BAD_STEP, checkpoint_path(), before)


if __name__ == "__main__":
    main()
