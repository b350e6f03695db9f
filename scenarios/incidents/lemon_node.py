"""One machine breaks every attempt, each time at another step: what is said is new each time, where is not."""

import os

import torch
import torch.distributed as dist

STEPS = 12


def main():
    dist.init_process_group("gloo")
    attempt, node = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["GROUP_RANK"])
    print(f"attempt {attempt}: rank {dist.get_rank()} of node {node} begins", flush=True)
    for step in range(STEPS):
        if node == 1 and step == (7, 3, 9)[attempt]:  # its memory has a bad row
            raise RuntimeError(f"uncorrectable memory error in step {step}")
        dist.all_reduce(torch.ones(64))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
