"""What a function may change in its process, and the next one is to find as a fresh process has it."""

from __future__ import annotations

import functools
import os
import random
import sys
from typing import Any

from ....node import warm


class Surroundings:
    """Remembers how things are now, in a rank that has joined the process group."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._c10d: Any = dist.distributed_c10d
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._settings = self._read_settings()
        self._group = dist.group.WORLD
        self._known = set(self._c10d._world.pg_map)
        self._made = False
        if self._group is None:
            self._note_groups()

    def renew(self) -> str:
        """Put everything back; returns why that cannot be done wholly, or nothing."""
        if os.getcwd() != self._folder:
            os.chdir(self._folder)
        if os.environ != self._environment:
            for name in os.environ.keys() - self._environment.keys():
                del os.environ[name]
            os.environ.update(self._environment)
        sys.path[:] = self._path
        if self._read_settings() != self._settings:
            self._write_settings()
        random.seed()
        warm.renew_random_state()
        if self._made or self._dist.group.WORLD is not self._group:
            return "the process group was destroyed, or made"
        for group in [group for group in self._c10d._world.pg_map if group not in self._known]:
            self._dist.destroy_process_group(group)
        return ""

    def _note_groups(self) -> None:
        """Where there is no process group, note when one is made: another one could not meet in the same store."""
        make = self._c10d.init_process_group

        @functools.wraps(make)
        def noted(*arguments: Any, **named: Any) -> Any:
            self._made = True
            return make(*arguments, **named)

        self._c10d.init_process_group = self._dist.init_process_group = noted

    @property
    def groups(self) -> int:
        """How many process groups this process has made; all ranks have to agree about that."""
        return int(self._c10d._world.group_count)

    def _read_settings(self) -> tuple[Any, ...]:
        torch = self._torch
        device = torch.get_default_device() if hasattr(torch, "get_default_device") else None
        return (
            torch.get_default_dtype(),
            device,
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_anomaly_enabled(),
        )

    def _write_settings(self) -> None:
        torch = self._torch
        writers = (
            torch.set_default_dtype,
            lambda _: torch.set_default_device(None),
            torch.set_grad_enabled,
            torch.set_num_threads,
            torch.use_deterministic_algorithms,  # imports a lot
            torch.autograd.set_detect_anomaly,
        )
        for write, before, now in zip(writers, self._settings, self._read_settings()):
            if before != now:
                write(before)
