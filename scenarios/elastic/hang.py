"""A rank that hangs: torchrun sees a process that lives, and waits as long as that does."""

import time

import torch
import torch.distributed as dist

BAD_STEP = 2


def main():
    dist.init_process_group("gloo")
    weights = torch.zeros(10)
    for step in range(BAD_STEP + 1):
        if (dist.get_rank(), step) == (1, BAD_STEP):
            time.sleep(3600)
        gradient = torch.ones(10)
        dist.all_reduce(gradient)
        weights -= gradient / dist.get_world_size()


if __name__ == "__main__":
    main()
