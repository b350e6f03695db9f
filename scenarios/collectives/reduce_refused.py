"""What gloo refuses to reduce: an operation that makes no sense for a dtype raises on every rank.

A refusal is good news: nobody hangs, and the group still works afterwards, as the last sum shows. (Seen with torch
2.13; an older gloo refuses AVG altogether.)
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    attempts = [
        ("AVG", torch.int64),  # the mean of integers is no integer
        ("BAND", torch.float32),  # a float has no bits to speak of
        ("BOR", torch.float32),
        ("BXOR", torch.float32),
        ("MIN", torch.complex64),  # complex numbers have no order
        ("PRODUCT", torch.complex64),
        ("SUM", torch.complex64),
    ]
    for name, dtype in attempts:
        x = torch.tensor([1, 2]).to(dtype)
        try:
            dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
            outcome = "accepted"
        except (RuntimeError, ValueError) as error:
            outcome = "refused"
            print(f"rank {rank}: {name} of {dtype} is refused: {str(error).splitlines()[0]}", flush=True)
        note(f"{name} of {dtype}", outcome)

    total = torch.tensor([rank])
    dist.all_reduce(total)
    print(f"rank {rank}: the group still sums: {total.item()}", flush=True)
    note("sum afterwards", total)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
