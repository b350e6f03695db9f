"""Which words of an exception are told."""

from __future__ import annotations

import pytest

from lab.diagnosis.errors import shorten_error
from tests.golden import golden

UNUSED = (
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error "
    "indicates that your module has parameters that were not used in producing loss. You can enable unused parameter "
    "detection by passing the keyword argument `find_unused_parameters=True` to "
    "`torch.nn.parallel.DistributedDataParallel`, and by \nmaking sure all `forward` function outputs participate in "
    "calculating loss. \nIf you already have done the above, then the distributed data parallel module wasn't able to "
    "locate the output tensors.\nParameter indices which did not receive grad for rank 1: 2 3\n In addition, you can "
    "set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print out information"
)
TWICE = (
    "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons.\n"
    "Parameter at index 1 has been marked as ready twice. This means that multiple autograd engine  hooks have fired."
)
LOADER = (
    "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
    '  File "/x/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n    data = fetcher.fetch(index)\n'
    '  File "/var/lab/run/work/train.py", line 12, in __getitem__\n    raise ValueError("bad sample 7")\n'
    "ValueError: bad sample 7\n"
)
STATE = (
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: copying a param with shape "
    "torch.Size([4, 2]) from checkpoint, the shape in current model is torch.Size([4, 3])."
)
ASSERT = (
    "torch.AcceleratorError: CUDA error: device-side assert triggered\n"
    "Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/types.html for more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace is wrong.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4 GiB. If reserved but unallocated memory is large "
    "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.  See documentation (https://docs.pytorch.org)"
)
FRAMES = "RuntimeError: broken\nException raised from f at /x.cpp:1 (most recent call first):\nframe #0: c10::Error"
NAMES = ["a.weight", "a.bias", "b.weight", "b.bias"]


def text(error: str, *, brief: bool = True) -> str:
    return shorten_error(error, lambda: NAMES, brief=brief)


@pytest.mark.parametrize("brief", [True, False])
@pytest.mark.parametrize(
    ("error", "end"),
    [
        (UNUSED, "… Parameter indices which did not receive grad for rank 1: 2 3 (b.weight and b.bias)"),
        (TWICE, "… Parameter at index 1 (a.bias) has been marked as ready twice"),
        (LOADER, "… ValueError: bad sample 7"),
        (FRAMES, "RuntimeError: broken"),
        (ASSERT, "CUDA error: device-side assert triggered"),
        (MEMORY, "Tried to allocate 4 GiB."),
    ],
)
def test_the_line_that_tells_most_is_told_after_the_first(error: str, end: str, brief: bool) -> None:
    told = text(error, brief=brief)
    assert told.startswith(error.partition(" ")[0])
    assert told.endswith(end)
    assert "\n" not in told


def test_a_state_that_does_not_fit_is_told_with_its_parameter() -> None:
    assert golden(1) in text(STATE)
    assert text(STATE).endswith("torch.Size([4, 3]).")


def test_the_end_of_a_long_line_is_told_too() -> None:
    told = text(f"RuntimeError: {'x ' * 300}but got size 5 for tensor number 1")
    assert told.endswith(golden(1))
    assert len(told) <= 160


def test_a_parameter_known_by_its_place_has_its_name() -> None:
    error = "RuntimeError: [1]: params[0] in this process with sizes [2] appears not to match sizes of process 0"
    assert golden(1) in text(error)


def test_a_number_without_a_name_stays_a_number() -> None:
    assert shorten_error(TWICE, list).endswith(golden(1))
    assert text(TWICE.replace("index 1", "index 9")).endswith(golden(2))


def test_an_error_of_one_line_is_told_whole() -> None:
    assert text("KeyError: 'labels'", brief=False) == "KeyError: 'labels'"
    assert text("") == ""


def test_what_gloo_says_to_everybody_is_left_out() -> None:
    error = (
        "RuntimeError: [/x/gloo/pair.cc:553] Connection closed by peer [::1]:7. This is typically caused by a remote "
        "worker crashing. Check the logs of the remote worker before reporting an error. GLHF! 🏖️"
    )
    assert text(error) == golden(1)
