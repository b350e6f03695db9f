"""Producers and a consumer that pass tensors through queues of torch.multiprocessing; no process group at all."""

import torch
import torch.multiprocessing as mp

PRODUCERS, ITEMS = 2, 5


def produce(number, queue, done):
    for item in range(ITEMS):
        queue.put((number, torch.full((4,), float(10 * number + item))))
    queue.put((number, None))
    done.wait()  # the memory of a tensor in a queue is the producer's


def consume(queue, results):
    ended, sums = 0, [0.0] * PRODUCERS
    while ended < PRODUCERS:
        number, tensor = queue.get()
        if tensor is None:
            ended += 1
        else:
            sums[number] += tensor.sum().item()
    results.put(sums)


def main():
    context = mp.get_context("spawn")
    queue, results, done = context.Queue(), context.SimpleQueue(), context.Event()
    producers = [context.Process(target=produce, args=(number, queue, done)) for number in range(PRODUCERS)]
    consumer = context.Process(target=consume, args=(queue, results))
    for process in (*producers, consumer):
        process.start()
    print("sums", results.get(), flush=True)
    done.set()
    for process in (*producers, consumer):
        process.join()
    print("exit codes", [process.exitcode for process in (*producers, consumer)], flush=True)
    shared = torch.zeros(3).share_memory_()
    adder = context.Process(target=shared.add_, args=(2,))
    adder.start()
    adder.join()
    print("shared", shared.tolist(), flush=True)


if __name__ == "__main__":
    main()
