"""The part of torch that an agent uses, for tests whose scripts do not import torch.

Importing the real one takes 1.5 s of processor time. This import only waits.
"""

import time
from types import SimpleNamespace

__version__ = "2.4.0"
time.sleep(0.8)  # tests interrupt commands while nodes import torch


class _Generator:
    def seed(self) -> int:
        return 0


default_generator = _Generator()


def zeros(*_: int) -> SimpleNamespace:
    return SimpleNamespace()


def set_num_threads(_: int) -> None:
    pass
