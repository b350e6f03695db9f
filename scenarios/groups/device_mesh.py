"""The same mesh through DeviceMesh: it makes the groups, and names say along which direction a collective runs.

This is what FSDP and tensor parallelism are given. `mesh["node"]` is the part of the mesh along one direction.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    columns = int(os.environ["LOCAL_WORLD_SIZE"])
    mesh = init_device_mesh("cpu", (world_size // columns, columns), mesh_dim_names=("node", "local"))
    print(f"rank {rank} is at {mesh.get_coordinate()} of {mesh.mesh.tolist()}", flush=True)
    note("mesh", mesh.mesh)
    note("at", mesh.get_coordinate())

    along_local, along_node = torch.tensor([rank]), torch.tensor([rank])
    dist.all_reduce(along_local, group=mesh["local"].get_group())  # within my node: my row
    dist.all_reduce(along_node, group=mesh["node"].get_group())  # across nodes: my column

    print(f"rank {rank}: sum along local {along_local.item()}, along node {along_node.item()}", flush=True)
    note("along_local", along_local)
    note("along_node", along_node)
    note("sizes", [mesh["node"].size(), mesh["local"].size()])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
