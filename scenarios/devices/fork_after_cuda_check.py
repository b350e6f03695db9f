"""Checks what `fork_after_cuda.py` notes: with a GPU both outcomes, without one that it needs one and no outcome."""


def only_spawn_works(results):
    for result in results:
        rank, notes = result["rank"], result["notes"]
        if notes["needs_gpu"]:
            assert not {"fork", "spawn"} & notes.keys(), f"rank {rank} has no GPU but notes an outcome: {notes}"
        else:
            refusal = "Cannot re-initialize CUDA in forked subprocess"
            assert refusal in notes["fork"], f"rank {rank}: the forked child said {notes['fork']!r}, not {refusal!r}"
            assert notes["spawn"] == "sum 3", f"rank {rank}: the spawned child said {notes['spawn']!r}, not 'sum 3'"
