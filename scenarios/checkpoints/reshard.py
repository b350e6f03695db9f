"""torch.distributed.checkpoint: saved by all ranks, each its shard; loaded by another number of ranks.

Each rank writes what it holds into a file of its own, and one file says where everything is. A reader asks for the
parts that it holds under its own sharding, whatever the writer's was. Here the job stops and starts again with one rank
less, and then with all of them: new process groups, over a file on the common volume. (One rank alone stays alone.)
"""

import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from training import make_model, shared_folder, trained_alone

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def shard(model):
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def whole_weights(model):
    return torch.cat([parameter.full_tensor().flatten() for parameter in model.parameters()]).detach()


def restart(folder, name, rank, world_size):
    """End this job and start one with `world_size` ranks; false for a rank that has no place in it."""
    dist.barrier()
    dist.destroy_process_group()
    if rank >= world_size:
        return False
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=world_size)
    return True


def load_and_save(folder, source, target, truth, rank):
    """In the job that now runs: load what another one saved, compare, save it again."""
    model = shard(make_model(seed=100 + rank))  # other weights on every rank
    dcp.load(model.state_dict(), checkpoint_id=folder / source)  # straight into the shards
    difference = (whole_weights(model) - truth).abs().max().item()
    rows = model[0].weight.to_local().shape[0]
    ranks = dist.get_world_size()
    print(f"rank {rank} of {ranks}: loaded {source}: {rows} of 10 rows, off by {difference:g}", flush=True)
    note(f"{target}_rows", rows)
    note(f"{target}_difference", difference)
    dcp.save(model.state_dict(), checkpoint_id=folder / target)
    return sum(path.suffix == ".distcp" for path in (folder / target).iterdir())


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    fewer = max(1, world_size - 1)
    folder = shared_folder()
    truth = torch.cat([parameter.detach().flatten() for parameter in trained_alone(3, world_size).parameters()])

    trained = shard(trained_alone(3, world_size))
    dcp.save(trained.state_dict(), checkpoint_id=folder / "by_all")

    if restart(folder, "fewer", rank, fewer):
        load_and_save(folder, "by_all", "by_fewer", truth, rank)
        restart(folder, "all", rank, world_size)
    else:  # this rank waits for the third job
        dist.init_process_group("gloo", init_method=f"file://{folder}/all", rank=rank, world_size=world_size)
    files = load_and_save(folder, "by_fewer", "by_all_again", truth, rank)
    note("shard_files", files)

    dist.barrier()  # all have read it
    if rank == 0:
        shutil.rmtree(folder)
    dist.barrier()
    dist.destroy_process_group()


def check(results):
    """The job with one rank less: its ranks share the ten rows, and its weights are the saved ones."""
    fewer = max(1, len(results) - 1)
    most = -(-10 // fewer)
    for result in results[:fewer]:
        rank, notes = result["rank"], result["notes"]
        rows = max(0, min(most, 10 - rank * most))
        for name, expected in {"by_fewer_rows": rows, "by_fewer_difference": 0}.items():
            assert notes[name] == expected, f"rank {rank}: note {name}: expected {expected}, got {notes[name]}"
    assert len(results) == fewer or "by_fewer_rows" not in results[-1]["notes"], "the last rank was not left out"


if __name__ == "__main__":
    main()
