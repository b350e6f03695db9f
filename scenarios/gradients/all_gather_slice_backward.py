"""A gather with a gradient, the cheap way: backward returns this rank's slice and talks to nobody.

Right where every rank computes the same loss of all rows: the shares of the ranks add up to the truth, and DDP, which
averages, returns 1/world_size of it. Wrong where each rank computes the loss of its own rows only, as most contrastive
code does: my embeddings also occur in the losses of the other ranks, and what those would send back is thrown away.
No factor repairs that, the gradient points elsewhere.
"""

import torch
import torch.distributed as dist
from single_process import compare, contrastive_loss, make_encoder, own_rows, true_gradients, whole_batch
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


class GatherSliceBackward(torch.autograd.Function):
    """All ranks' rows; backward keeps this rank's slice of the gradient that this rank computed."""

    @staticmethod
    def forward(_ctx, own):
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, own.contiguous())
        return torch.cat(gathered)

    @staticmethod
    def backward(_ctx, gradient):
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


def gradients(rows):
    """Of the loss of `rows`: by this rank's embeddings, and by the weight after DDP has averaged it."""
    model = DistributedDataParallel(make_encoder())
    own = model(whole_batch(dist.get_world_size())[own_rows(dist.get_rank())])
    own.retain_grad()
    contrastive_loss(GatherSliceBackward.apply(own), rows).backward()
    return own.grad, model.module.weight.grad


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    true_by_embedding, true_by_weight = true_gradients(world_size)

    by_embedding, by_weight = gradients(rows=slice(None))
    embedding_ratio, embedding_rest = compare(by_embedding, true_by_embedding[own_rows(rank)])
    weight_ratio, weight_rest = compare(by_weight, true_by_weight)
    _, missing = compare(gradients(rows=own_rows(rank))[1], true_by_weight)
    print(
        f"rank {rank}: loss of all rows: by my embeddings {embedding_ratio:.4f} of the true gradient, by the weight, "
        f"averaged by DDP, {weight_ratio:.4f}. Loss of my rows: {missing:.1%} of it is no multiple",
        flush=True,
    )
    note("embedding_ratio", embedding_ratio)
    note("weight_ratio_in_ddp", weight_ratio)
    note("rest", max(embedding_rest, weight_rest))
    note("loss_of_own_rows_has_a_rest", missing > 0.01)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
