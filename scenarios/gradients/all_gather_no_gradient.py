"""all_gather carries no gradient: it copies numbers between processes, and autograd sees only one process.

Every rank embeds its own rows and gathers everybody's embeddings. What arrives has no history (grad_fn is None), so a
loss made of it cannot be differentiated. An error is the good case: beside any other term that has a gradient, the
contrastive one contributes exactly nothing, and nobody complains.
"""

import torch
import torch.distributed as dist
from single_process import compare, contrastive_loss, make_encoder, own_rows, true_gradients, whole_batch

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    encoder = make_encoder()
    own = encoder(whole_batch(world_size)[own_rows(rank)])
    gathered = [torch.empty_like(own) for _ in range(world_size)]
    dist.all_gather(gathered, own)
    print(f"rank {rank}: mine has grad_fn {own.grad_fn}, what I gathered has {gathered[rank].grad_fn}", flush=True)

    loss = contrastive_loss(torch.cat(gathered))
    try:
        loss.backward()
        error = ""
    except RuntimeError as refused:
        error = str(refused)
        print(f"rank {rank}: backward() says: {error}", flush=True)

    (loss + 0.0 * own.sum()).backward()  # no error now: the second term has a history
    ratio, _ = compare(encoder.weight.grad, true_gradients(world_size)[1])
    print(f"rank {rank}: with a second term backward() runs; gradient is {ratio:g} of the true one", flush=True)

    note("gathered_has_history", gathered[rank].grad_fn is not None)
    note("backward_refused", "does not require grad" in error)
    note("true_gradient_is_zero", bool(true_gradients(world_size)[1].norm() < 1e-3))
    note("ratio", ratio)
    note("loss_difference", loss.item() - contrastive_loss(make_encoder()(whole_batch(world_size))).item())

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
