"""Object collectives: each rank's object has another size, so their tensors do too."""

import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
everybody = [None] * size
dist.all_gather_object(everybody, {"rank": rank, "text": "x" * (10**rank)})
gathered = [None] * size if rank == 0 else None
dist.gather_object([rank] * (rank + 1), gathered, dst=0)
handed = [None]
dist.scatter_object_list(handed, [list(range(n)) for n in range(size)] if rank == 0 else None, src=0)
config = [{"epochs": 3} if rank == 0 else None]
dist.broadcast_object_list(config, src=0)
