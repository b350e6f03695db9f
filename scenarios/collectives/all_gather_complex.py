"""All-gather of complex numbers: a complex64 travels as a pair of floats and arrives as a complex64.

The example of the PyTorch documentation, for any number of ranks: rank 0 gives [1+1j, 2+2j], rank 1 [3+3j, 4+4j] ...
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    mine = torch.tensor([1 + 1j, 2 + 2j], dtype=torch.complex64) + 2 * rank * (1 + 1j)
    print(f"rank {rank} gives {mine}", flush=True)
    everybody = [torch.zeros(2, dtype=torch.complex64) for _ in range(world_size)]
    dist.all_gather(everybody, mine)

    print(f"rank {rank} holds {everybody}", flush=True)
    note("everybody", everybody)  # a complex number is noted as [real, imaginary]
    note("dtype", everybody[0].dtype)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
