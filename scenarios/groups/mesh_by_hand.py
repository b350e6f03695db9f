"""Rows and columns of a mesh, by hand: a row is a node, a column all ranks with the same local rank.

In training the fast links lie within a node, so one kind of parallelism runs along rows, another along columns. Every
rank makes all groups and keeps two of them.
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

    columns = int(os.environ["LOCAL_WORLD_SIZE"])
    rows = world_size // columns
    row, column = divmod(rank, columns)

    row_group = column_group = None
    for r in range(rows):
        group = dist.new_group([r * columns + c for c in range(columns)])
        row_group = group if r == row else row_group
    for c in range(columns):
        group = dist.new_group([r * columns + c for r in range(rows)])
        column_group = group if c == column else column_group

    row_sum, column_sum = torch.tensor([rank]), torch.tensor([rank])
    dist.all_reduce(row_sum, group=row_group)
    dist.all_reduce(column_sum, group=column_group)

    print(f"rank {rank} at ({row}, {column}): row {row_sum.item()}, column {column_sum.item()}", flush=True)
    note("at", [row, column])
    note("row_sum", row_sum)
    note("column_sum", column_sum)

    dist.all_reduce(row_sum, group=column_group)  # first along rows, then along columns: the sum of all
    note("sum", row_sum)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
