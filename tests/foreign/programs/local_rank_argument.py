"""As written for `torch.distributed.launch`: the local rank is an argument, or what the launcher put in its place."""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser(description="an average over all ranks")
parser.add_argument("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--seed", type=int, default=1)


def reduce_mean(tensor, count):
    tensor = tensor.clone()
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor / count


def main():
    print(f"rank {os.environ['RANK']} reads its arguments\n", end="", flush=True)
    args = parser.parse_args()
    assert args.local_rank == int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="gloo", init_method="env://")
    generator = torch.Generator().manual_seed(args.seed + dist.get_rank())
    for step in range(args.steps):
        mean = reduce_mean(torch.rand(3, generator=generator), dist.get_world_size())
        if dist.get_rank() == 0:
            print(f"step {step}: {[round(value, 4) for value in mean.tolist()]}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
