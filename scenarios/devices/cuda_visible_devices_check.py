"""Checks what `cuda_visible_devices.py` notes, with GPUs and without."""


def one_gpu_or_none(results):
    for result in results:
        notes = result["notes"]
        got = [notes["needs_gpu"], notes["count"], notes["device"]]
        assert got in ([True, 0, None], [False, 1, "cuda:0"]), (
            f"rank {result['rank']}: expected one GPU called cuda:0, or none and needs_gpu; got {got}"
        )
