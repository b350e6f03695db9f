"""CUDA does not survive a fork: a child that is forked after the parent has used CUDA cannot use it.

"Cannot re-initialize CUDA in forked subprocess" is what data loader workers and mp.Process run into on Linux, where
fork is the default. A spawned child starts afresh and can. Without a GPU there is nothing to see, and the run says so.
"""

import torch
import torch.multiprocessing as mp

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def use_cuda(results):
    try:
        results.put(f"sum {torch.ones(3, device='cuda').sum().item():.0f}")
    except RuntimeError as error:
        results.put(str(error))


def ask_child(method):
    context = mp.get_context(method)
    results = context.SimpleQueue()
    child = context.Process(target=use_cuda, args=(results,))
    child.start()
    answer = results.get()
    child.join()
    print(f"a child by {method} says: {answer}", flush=True)
    return answer


def main():
    needs_gpu = not torch.cuda.is_available()
    note("needs_gpu", needs_gpu)
    if needs_gpu:
        print("needs a GPU: without one there is nothing to see", flush=True)
        return
    torch.ones(1, device="cuda")  # from here on this process must not fork children that use CUDA
    note("fork", ask_child("fork"))
    note("spawn", ask_child("spawn"))


if __name__ == "__main__":
    main()
