"""A gather with the whole gradient: backward adds what all ranks computed (all_reduce), then takes this rank's slice.

My embeddings went to every rank, so every rank owes me a gradient. Whether each rank computes the loss of all rows or
only of its own, what arrives is world_size times the single-process gradient of my embeddings. That is what DDP's
averaging wants: it divides by world_size, and the weights get exactly the single-process gradient. Without DDP, or with
a sum instead of its average, divide by world_size yourself.
"""

import torch
import torch.distributed as dist
from single_process import compare, contrastive_loss, make_encoder, own_rows, true_gradients, whole_batch
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


class GatherSumBackward(torch.autograd.Function):
    """All ranks' rows; backward adds the gradients of all ranks and keeps this rank's slice."""

    @staticmethod
    def forward(_ctx, own):
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, own.contiguous())
        return torch.cat(gathered)

    @staticmethod
    def backward(_ctx, gradient):
        gradient = gradient.clone()  # autograd may still need its own
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


def gradients(rows):
    """Of the loss of `rows`: by this rank's embeddings, and by the weight after DDP has averaged it."""
    model = DistributedDataParallel(make_encoder())
    own = model(whole_batch(dist.get_world_size())[own_rows(dist.get_rank())])
    own.retain_grad()
    contrastive_loss(GatherSumBackward.apply(own), rows).backward()
    return own.grad, model.module.weight.grad


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    true_by_embedding, true_by_weight = true_gradients(world_size)

    for loss_of, rows in {"all_rows": slice(None), "own_rows": own_rows(rank)}.items():
        by_embedding, by_weight = gradients(rows)
        embedding_ratio, embedding_rest = compare(by_embedding, true_by_embedding[own_rows(rank)])
        weight_ratio, weight_rest = compare(by_weight, true_by_weight)
        print(
            f"rank {rank}: loss of {loss_of}: by my embeddings {embedding_ratio:.4f} times the true gradient, "
            f"by the weight, averaged by DDP, {weight_ratio:.4f}",
            flush=True,
        )
        note(f"{loss_of}_embedding_ratio", embedding_ratio)
        note(f"{loss_of}_weight_ratio_in_ddp", weight_ratio)
        note(f"{loss_of}_rest", max(embedding_rest, weight_rest))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
