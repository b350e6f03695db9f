"""A mutant as one line of text: what one rank, or all, does differently, and when. Pure, without torch."""

from __future__ import annotations

import re
from typing import NamedTuple

VARIABLE = "LAB_MUTANT"
"""Set for workers: the mutant, or `OBSERVE`."""
OBSERVE = "observe"
"""Change nothing, and record what a mutant could change."""
CALLS = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "gather", "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "send",
)  # fmt: skip


class Kind(NamedTuple):
    """A kind of mutation."""

    does: str
    """What the rank does, as words after its name; `{}` is the call or phase with its line, `{to}` the parameter."""
    targets: tuple[str, ...]
    parameter: str = ""
    """What `to=` holds; empty: it needs none."""


_COLLECTIVES = tuple(name for name in CALLS if name not in ("send", "recv"))
_DATA = tuple(name for name in CALLS if name not in ("barrier", "monitored_barrier"))
_ANY = (*CALLS, "forward", "loss", "backward", "zero_grad", "step", "batch")
KINDS = {
    "skip": Kind("skips {}", (*CALLS, "step")),
    "repeat": Kind("makes {} twice", CALLS),
    "swap": Kind("makes {} after its next call", CALLS),
    "op": Kind("calls {to} instead of {}", _COLLECTIVES, "all_reduce, broadcast, reduce, or barrier"),
    "reduction": Kind(
        "passes ReduceOp.{to} to {}", ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
        "a name of ReduceOp, such as MAX",
    ),
    "root": Kind("passes the root {to} to {}", ("broadcast", "reduce", "gather", "scatter"), "a rank of the group"),
    "group": Kind("makes {} in the group {to}", CALLS, "the name that PyTorch gave a group"),
    "peer": Kind("makes {} with rank {to}", ("send", "recv"), "a rank of the group"),
    "tag": Kind("makes {} with the tag {to}", ("send", "recv"), "a number"),
    "shape": Kind("passes a tensor with one element {to} to {}", _DATA, "more or less"),
    "dtype": Kind("passes a tensor of {to} to {}", _DATA, "a dtype, such as float64"),
    "split": Kind("passes other split sizes to {}", ("all_to_all_single",)),
    "nan": Kind("passes a NaN to {}", _DATA),
    "change": Kind("changes the tensor of {} before it waits", _DATA),
    "unwaited": Kind("never waits for {}", CALLS),
    "raise": Kind("raises an error before {}", _ANY),
    "exit": Kind("exits with code {to} before {}", _ANY, "an exit code"),
    "abort": Kind("aborts before {}", _ANY),
    "segfault": Kind("has a segmentation fault before {}", _ANY),
    "hang": Kind("hangs before {}", _ANY),
    "hang_gil": Kind("hangs with the GIL before {}", _ANY),
    "sleep": Kind("sleeps {to} s before {}", _ANY, "seconds"),
    "lr": Kind("multiplies its learning rate by {to} before {}", ("step",), "a factor"),
    "no_sync": Kind("does not synchronize the gradients of {}", ("forward",)),
    "drop": Kind("drops {}", ("batch",)),
    "data": Kind("gets the data of rank 0 from {}", ("sampler",)),
    "world": Kind("passes the world size {to} to {}", ("init_process_group",), "a number"),
    "address": Kind("uses the next port in {}", ("init_process_group",)),
}  # fmt: skip
BEHAVIORS = ("raise", "exit", "abort", "segfault", "hang", "hang_gil", "sleep")
"""Kinds that change what the rank does before a call, and not the call."""
EXAMPLE = "skip all_reduce rank=1 nth=2"
ALLOWED = "a kind, a call or phase, and rank=, nth=, at=, to=, such as `skip all_reduce rank=1 nth=2`"


class Mutant(NamedTuple):
    """One thing that ranks do differently."""

    kind: str
    target: str
    """The operation or phase."""
    ranks: tuple[int, ...] = ()
    """Empty: all."""
    nth: int = 1
    """Of the calls or phases of this name that the rank makes, from 1; 0: each."""
    at: str = ""
    """Count only those at this line of the script."""
    to: str = ""

    @property
    def text(self) -> str:
        """The line that `parse_mutant` reads."""
        ranks = ",".join(map(str, self.ranks)) or "all"
        words = [self.kind, self.target, f"rank={ranks}", f"nth={self.nth or 'all'}"]
        return " ".join([*words, *([f"at={self.at}"] if self.at else []), *([f"to={self.to}"] if self.to else [])])


def parse_mutant(text: str) -> Mutant:
    """Read a mutant.

    Raises:
        ValueError: the text is none; the message names the word and the allowed ones.
    """
    kind, *words = text.split() or [""]
    if kind not in KINDS:
        raise ValueError(f"found the kind {kind!r}; allowed: {', '.join(KINDS)}")
    target = words.pop(0) if words and "=" not in words[0] else ""
    if target not in KINDS[kind].targets:
        raise ValueError(f"found {target!r} after {kind}; allowed: {', '.join(KINDS[kind].targets)}")
    mutant = Mutant(kind, target)
    for word in words:
        key, _, value = word.partition("=")
        if key == "rank" and re.fullmatch(r"all|\d{1,9}(,\d{1,9})*", value):
            mutant = mutant._replace(ranks=() if value == "all" else tuple(map(int, value.split(","))))
        elif key == "nth" and re.fullmatch(r"all|[1-9]\d{0,8}", value):
            mutant = mutant._replace(nth=0 if value == "all" else int(value))
        elif key == "at" and value:
            mutant = mutant._replace(at=value)
        elif key == "to" and value:
            mutant = mutant._replace(to=value)
        else:
            raise ValueError(f"found {word!r}; allowed: rank=1, rank=all, nth=2, nth=all, at=train.py:9, to=VALUE")
    if KINDS[kind].parameter and not mutant.to:
        raise ValueError(f"found no to=; {kind} needs {KINDS[kind].parameter}")
    return mutant
