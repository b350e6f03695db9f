"""The same thirty tests by torch's MultiProcContinuousTest: three processes of this machine for the class."""

import functools

from bodies import BODIES, SIZES
from torch.testing._internal.common_distributed import MultiProcContinuousTest


class ContinuousTest(MultiProcContinuousTest):
    world_size = 3

    @classmethod
    def backend_str(cls):
        return "gloo"

    @classmethod
    def device_type(cls):
        return "cpu"


def method(body, size):
    return lambda self: body(self.rank, self.world_size, size)


for body in BODIES:
    for size in SIZES:
        setattr(ContinuousTest, f"test_{body.__name__}_{size}", functools.wraps(body)(method(body, size)))
del body
