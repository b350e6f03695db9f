"""Who is who: 3 nodes with 4 processes each are 12 ranks, numbered node by node.

rank = node_rank * nproc_per_node + local_rank. The local rank picks the GPU, the rank the share of the data.
"""

import os

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    local_rank, node_rank = int(os.environ["LOCAL_RANK"]), int(os.environ["GROUP_RANK"])
    mine = torch.tensor([rank, local_rank, node_rank, world_size])
    everybody = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(everybody, mine)

    if local_rank == 0:  # one process of each node prints the table of its node
        rows = [row.tolist() for row in everybody if row[2] == node_rank]
        lines = [f"{'rank':>10}{'local_rank':>12}{'node_rank':>12}{'world_size':>12}"]
        lines += [f"{row[0]:>10}{row[1]:>12}{row[2]:>12}{row[3]:>12}" for row in rows]
        print("\n".join(lines), flush=True)

    note("rank", rank)
    note("local_rank", local_rank)
    note("node_rank", node_rank)
    note("world_size", world_size)
    note("rank_from_the_others", node_rank * int(os.environ["LOCAL_WORLD_SIZE"]) + local_rank)
    note("on_my_node", [row[0] for row in everybody if row[2] == node_rank])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
