"""Backends: which ones this PyTorch was built with, what asking for a missing one says, and which one a group uses.

gloo is for CPUs, nccl for NVIDIA GPUs, mpi and ucc come only with a PyTorch that was built with them. Each group may
have a backend of its own, also one for each kind of device.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    available = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
        "ucc": dist.is_ucc_available(),
    }
    print(f"distributed is available: {dist.is_available()}, with {available}", flush=True)
    note("gloo", dist.is_available() and available["gloo"])

    missing = [name for name, is_there in available.items() if not is_there]
    refused = []
    for name in missing:
        try:
            dist.init_process_group(name)
        except (RuntimeError, AssertionError) as error:
            refused.append(name)
            print(f"asked for {name}: {error}", flush=True)
    note("missing_but_accepted", [name for name in missing if name not in refused])

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    upper_half = dist.new_group(list(range(world_size // 2, world_size)))
    cpu_only = dist.new_group(backend="cpu:gloo")
    inside = rank >= world_size // 2

    note("default", [dist.get_backend(), rank, world_size])
    note("upper_half", [dist.get_backend(upper_half) if inside else None, dist.get_rank(upper_half)])
    note("cpu_only", [dist.get_backend(cpu_only), dist.get_rank(cpu_only), dist.get_world_size(cpu_only)])
    x = torch.ones(1)
    dist.all_reduce(x, group=cpu_only)
    print(f"rank {rank} of {world_size} uses {dist.get_backend()}; {x.item():.0f} ranks in cpu_only", flush=True)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
