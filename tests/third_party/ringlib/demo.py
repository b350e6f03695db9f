"""What each rank holds after a ring all-reduce of ten numbers."""

import torch
import torch.distributed as dist
from ringlib import all_reduce

try:
    from lab import note
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    numbers = torch.arange(10.0) * (dist.get_rank() + 1)
    all_reduce(numbers)
    note("last", numbers[-1].item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
