"""torch.distributed.nn.functional.all_gather is an all_gather with a gradient: backward sums over ranks.

It behaves as the hand-written all_gather_sum_backward does: world_size times the single-process gradient by the
embeddings, exactly the single-process gradient of the weights once DDP has averaged. Recent versions of PyTorch call
it deprecated in favour of torch.distributed._functional_collectives, whose name still begins with an underscore; that
one is measured too where it exists.
"""

import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
import torch.distributed.nn.functional as dist_nn
from single_process import compare, contrastive_loss, make_encoder, own_rows, true_gradients, whole_batch
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

warnings.filterwarnings("ignore", category=FutureWarning)  # "is deprecated", on every rank


def gather_nn(own):
    return torch.cat(dist_nn.all_gather(own))


def gather_functional(own):
    named = "all_gather_single_autograd", "all_gather_tensor_autograd"  # the new name, the old one
    gather = next(getattr(functional_collectives, name) for name in named if hasattr(functional_collectives, name))
    return gather(own, 0, dist.group.WORLD)


def gradients(gather):
    """Of the loss of this rank's rows: by its embeddings, and by the weight after DDP has averaged it.

    The DDP object ends with this function. One that outlives destroy_process_group() takes the group down with
    Python's lock held; gloo's thread, which waits for that lock, is then waited for: a hang, seen in PyTorch 2.13.
    """
    model = DistributedDataParallel(make_encoder())
    own = model(whole_batch(dist.get_world_size())[own_rows(dist.get_rank())])
    own.retain_grad()
    contrastive_loss(gather(own), own_rows(dist.get_rank())).backward()
    return own.grad, model.module.weight.grad


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    true_by_embedding, true_by_weight = true_gradients(world_size)

    for name, gather in {"nn_functional": gather_nn, "functional_collectives": gather_functional}.items():
        by_embedding, by_weight = gradients(gather)
        embedding_ratio, embedding_rest = compare(by_embedding, true_by_embedding[own_rows(rank)])
        weight_ratio, weight_rest = compare(by_weight, true_by_weight)
        print(
            f"rank {rank}: {name}: by my embeddings {embedding_ratio:.4f} times the true gradient, "
            f"by the weight, averaged by DDP, {weight_ratio:.4f}",
            flush=True,
        )
        note(f"{name}_embedding_ratio", embedding_ratio)
        note(f"{name}_weight_ratio_in_ddp", weight_ratio)
        note(f"{name}_rest", max(embedding_rest, weight_rest))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
