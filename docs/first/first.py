"""Say here, in a sentence or two, what this shows."""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    total = torch.tensor([rank])
    dist.all_reduce(total)  # SUM is the default
    print(f"rank {rank} of {dist.get_world_size()}: the sum of all ranks is {total.item()}")
    note("total", total.item())

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
