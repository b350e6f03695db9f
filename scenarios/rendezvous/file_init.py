"""file://: the meeting place is a file that all machines see, on NFS for instance; no address, no port.

The file must be new: one that an earlier run has left leads into nowhere. When all have left their groups, the last
one removes it.
"""

import os
import tempfile

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = os.environ.get("LAB_SHARED", "/shared")
    if not os.path.isdir(folder):
        folder = tempfile.gettempdir()  # outside the lab, on a single machine
    path = os.path.join(folder, "meet-" + os.environ.get("TORCHELASTIC_RUN_ID", "here"))

    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    print(f"rank {rank} met the others in {path}, {os.path.getsize(path)} bytes", flush=True)
    note("file_is_there", os.path.exists(path))

    ranks = torch.tensor([rank])
    dist.all_reduce(ranks)
    note("sum_of_ranks", ranks)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
