"""What loading a checkpoint costs in memory, beyond the model itself: four ways, by rank.

  tensors  rank 0 loads the file and broadcasts tensor by tensor, straight into place
  load     every rank loads the file, then copies it into its model
  map      every rank maps the file (mmap=True): pages come and go as they are read, and ranks of a node share them
  object   rank 0 loads the file and broadcasts the whole state_dict as one pickled object

The unit is the size of the checkpoint. The mark that the kernel keeps of a process's memory only rises, so the cheapest
way comes first. For `map` the peak says nothing, as it counts pages of the file: what is noted is the process's own.
"""

import shutil

import torch
import torch.distributed as dist
from training import shared_folder

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

MEBIBYTES = 64


def memory(field):
    """MiB: VmRSS (now), VmHWM (the highest so far) or RssAnon (now, without pages of files)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field + ":"))


def copy_into(model, state):
    for name, tensor in model.items():
        tensor.copy_(state[name])


def tensors(model, path):
    if dist.get_rank() == 0:
        copy_into(model, torch.load(path, map_location="cpu", weights_only=True))
    for tensor in model.values():
        dist.broadcast(tensor, src=0)


def load(model, path):
    copy_into(model, torch.load(path, map_location="cpu", weights_only=True))


def broadcast_object(model, path):
    states = [torch.load(path, map_location="cpu", weights_only=True) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(states, src=0)
    copy_into(model, states[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = shared_folder() / "model.pt"

    count = MEBIBYTES // 4  # 4 MiB each
    if rank == 0:
        torch.save({f"layer{i}": torch.full((1024, 1024), float(i)) for i in range(count)}, path)
    model = {f"layer{i}": torch.ones(1024, 1024) * -1 for i in range(count)}
    dist.barrier()

    model_alone = memory("VmRSS")
    for name, way in {"tensors": tensors, "load": load, "object": broadcast_object}.items():
        for tensor in model.values():
            tensor.fill_(-1)
        way(model, path)
        extra = (memory("VmHWM") - model_alone) / MEBIBYTES
        print(f"rank {rank}: {name:8} {extra:5.2f} times the checkpoint at the peak", flush=True)
        note(f"peak_{name}", extra if name != "object" else extra > 2)  # how much more is up to pickle
        note(f"loaded_{name}", all(bool((model[f"layer{i}"] == i).all()) for i in range(count)))

    before = memory("RssAnon")
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    copy_into(model, state)
    extra = (memory("RssAnon") - before) / MEBIBYTES
    print(f"rank {rank}: {'map':8} {extra:5.2f} times the checkpoint of its own, while the state is held", flush=True)
    note("own_memory_map", extra)

    dist.barrier()  # all have read it
    if rank == 0:
        shutil.rmtree(path.parent)
    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
