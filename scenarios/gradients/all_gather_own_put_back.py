"""The oldest repair: after all_gather put your own tensor, which has a history, back at index rank.

The loss then depends on this rank's embeddings, and backward() gives this rank's share of the gradient: exactly what
the single process has for these rows. The shares of all ranks add up to the true gradient of the weights. DDP does not
add, it averages: it returns 1/world_size of the truth. So this way wants the loss multiplied by world_size (or a
learning rate that many times as large). It also wants every rank to compute the loss of all rows, see
all_gather_slice_backward.
"""

import torch
import torch.distributed as dist
from single_process import compare, contrastive_loss, make_encoder, own_rows, true_gradients, whole_batch
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def gradients(scale):
    """Of `scale` times the loss: by this rank's embeddings, and by the weight after DDP has averaged it."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_encoder())
    own = model(whole_batch(world_size)[own_rows(rank)])
    own.retain_grad()

    gathered = [torch.empty_like(own) for _ in range(world_size)]
    dist.all_gather(gathered, own)
    gathered[rank] = own  # the numbers stay the same; now they have a history

    (scale * contrastive_loss(torch.cat(gathered))).backward()
    return own.grad, model.module.weight.grad


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    true_by_embedding, true_by_weight = true_gradients(world_size)

    by_embedding, by_weight = gradients(scale=1)
    embedding_ratio, embedding_rest = compare(by_embedding, true_by_embedding[own_rows(rank)])
    weight_ratio, weight_rest = compare(by_weight, true_by_weight)
    scaled_ratio, scaled_rest = compare(gradients(scale=world_size)[1], true_by_weight)
    print(
        f"rank {rank}: by my embeddings {embedding_ratio:.4f} of the true gradient; by the weight, averaged by DDP, "
        f"{weight_ratio:.4f}; with the loss times {world_size}: {scaled_ratio:.4f}",
        flush=True,
    )
    note("embedding_ratio", embedding_ratio)
    note("weight_ratio_in_ddp", weight_ratio)
    note("weight_ratio_in_ddp_loss_times_world_size", scaled_ratio)
    note("rest", max(embedding_rest, weight_rest, scaled_rest))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
