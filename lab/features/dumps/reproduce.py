"""Write a scenario that hangs as a job did, from the calls in its dumps: gloo, fewer ranks, smaller tensors."""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain, groupby, pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Template

from lab.diagnosis.evidence import Evidence
from lab.errors import UsageError
from lab.features.calls.notation import Repeated, fold_repeats
from lab.features.dumps.dump import DEFAULT_GROUP, UNDESCRIBED, Entry
from lab.features.dumps.record import Calls
from lab.frozen import Frozen
from lab.words import capitalize_first, group_pairs, name_ranks

SCRIPT, SCENARIO = "script.py", "scenario.yaml"
MOST_RANKS = 64
"""Most processes of a scenario: each needs some 100 MB on one machine."""
_TIMEOUT_S = 10
_ROUNDS, _MOST_CALLS = 3, 40
"""Complete steps that a script repeats before the broken one; calls, if the job does not repeat itself."""
_MOST_SEARCHED = 2000
"""Latest calls of a rank among which repetitions are actual."""
_LARGEST = 1000
"""Elements of a tensor; larger ones get a size of their own above it, so that different sizes stay different."""
_LONGEST_NAME = 60
_SEPARATORS = re.compile(r"[^a-z0-9]+")

Members = tuple[int, ...]
Group = tuple[str, Members]
"""Name and ranks; several groups can have one name."""
Wait = tuple[frozenset[str], frozenset[int]]
"""The call in which a rank hangs: its operation, or those of its messages; the ranks of its group, or its peers."""


class Act(NamedTuple):
    """A collective of a rank, or the messages that it starts together."""

    op: str
    """Empty for messages."""
    group: Group
    shape: tuple[int, ...]
    """Of the tensor that the rank gives to the group; of the one that it gets, if the group reduces and scatters."""
    dtype: str
    over: bool
    steps: tuple[Hashable, ...]
    """Keys that it shares with the acts of other ranks that belong to it."""
    source: str
    """`file:line` of the job."""
    root: bool = False
    """Whether the rank is the root, as its tensors show."""
    messages: tuple[tuple[str, int, tuple[int, ...], str], ...] = ()
    """Operation, other rank, shape, and dtype."""


class Replica(Frozen):
    """A scenario that hangs as a job did."""

    script: str
    scenario: str
    size: int
    """Ranks of the job."""
    alike: Mapping[int, Members]
    """Rank of the scenario -> ranks of the job that it stands for; its own number there comes first."""
    waits: Mapping[int, Wait | None]
    """By rank of the scenario; None: it makes no further call."""
    has_pending: frozenset[int]
    """Ranks of the scenario that hang after calls that ended in the job, but need not end in the scenario."""
    notes: tuple[str, ...]
    """What differs from the job, one sentence each."""


# -- the job


def read_acts(calls: Calls) -> dict[int, list[Act]]:
    """Return what each rank did up to the hang; ranks without a dump did what the others needed."""
    acts = {rank: [*_acts(rank, entries, calls)] for rank, entries in calls.by_rank.items()}
    missing = {rank for of in calls.groups.values() for ranks in of.values() for rank in ranks} - acts.keys()
    order = _sort_steps(acts) if missing else []
    acts |= {rank: [*_assume_acts(rank, order, calls.by_rank)] for rank in missing}
    last = {rank: max((at for at, act in enumerate(ours) if act.over), default=-1) for rank, ours in acts.items()}
    return {rank: acts[rank][: last[rank] + 2] for rank in sorted(acts)}  # a rank waits in the first call that hangs


def _acts(rank: int, entries: Iterable[Entry], calls: Calls) -> Iterator[Act]:
    numbers: Counter[tuple[int, int]] = Counter()
    batches = groupby(entries, key=lambda one: (one.group, one.p2p_seq if one.message else -one.number))
    for (name, _), batch in batches:
        members, together = calls.groups[name][rank], [*batch]
        entry, over = together[0], all(one.over for one in together)
        file, line, _ = entry.location
        source = f"{file.rpartition('/')[2]}:{line}" if file else "a line"
        if not entry.message:
            gets = entry.op == "scatter" or entry.op.startswith("reduce_scatter")
            tensors = entry.outputs if gets else entry.inputs
            shape = tensors[0].shape if len(tensors) == 1 else (sum(tensor.count for tensor in tensors),)
            dtype = next((tensor.dtype for tensor in (*tensors, *entry.inputs, *entry.outputs)), "")
            root = bool({"gather": entry.outputs, "scatter": entry.inputs}.get(entry.op))
            if len(members) > 1:
                yield Act(entry.op, (name, members), shape, dtype, over, ((name, members, entry.seq),), source, root)
            continue
        messages, steps = [], []
        for one in together:
            peer = members[one.peer or 0]
            ends = (rank, peer) if one.op == "send" else (peer, rank)
            tensor = next(iter(one.inputs or one.outputs), None)
            messages.append((one.op, peer, tensor.shape if tensor else (1,), tensor.dtype if tensor else ""))
            steps.append((*ends, numbers[ends]))
            numbers[ends] += 1
        yield Act("", ("", ()), (), "", over, tuple(steps), source, messages=tuple(messages))


def _sort_steps(acts: Mapping[int, Sequence[Act]]) -> list[dict[int, Act]]:
    """Return the collectives, in an order that agrees with that of each rank, with the act of each rank."""
    there: dict[Hashable, dict[int, Act]] = defaultdict(dict)
    sorter: TopologicalSorter[Hashable] = TopologicalSorter()
    for rank, ours in acts.items():
        for act in ours:
            there[act.steps[0]][rank] = act
        for before, after in pairwise(act.steps[0] for act in ours):
            sorter.add(after, before)
    try:
        order = [*sorter.static_order()]
    except CycleError:  # ranks that called them in different orders
        order = [*there]
    return [there[step] for step in dict.fromkeys([*order, *there]) if next(iter(there[step].values())).op]


def _assume_acts(rank: int, order: Sequence[dict[int, Act]], dumped: Collection[int]) -> Iterator[Act]:
    """Yield what a rank without a dump did: completed steps, and the broken one if a rank with a dump missed it."""
    for there in order:
        act = next(iter(there.values()))._replace(root=False, over=any(one.over for one in there.values()))
        if rank in act.group[1] and (act.over or any(one in dumped and one not in there for one in act.group[1])):
            yield act
            if not act.over:
                return


# -- the part of it that matters


def _find_families(acts: Mapping[int, Sequence[Act]], about: Mapping[str, str]) -> list[list[Group]]:
    """Return the groups: those with one description and size that share no rank have one role, as in a grid."""
    families: list[list[Group]] = []
    used = {act.group for ours in acts.values() for act in ours if act.op}
    for name, members in sorted(used, key=lambda one: (int(one[0]) if one[0].isdecimal() else 1 << 40, *one)):
        for family in families:
            (other, ranks), used_ranks = family[0], {*chain.from_iterable(ranks for _, ranks in family)}
            if about.get(name) == about.get(other) and len(members) == len(ranks) and used_ranks.isdisjoint(members):
                family.append((name, members))
                break
        else:
            families.append([(name, members)])
    return families


def _kinds(rank: int, acts: Sequence[Act], families: Sequence[Sequence[Group]]) -> list[Hashable]:
    """Return acts such that they equal those of ranks that behave alike."""
    number = {group: index for index, family in enumerate(families) for group in family}
    return [
        (act.op, number.get(act.group), () if act.op in _SPLIT else act.shape, act.dtype, act.over, act.root,
         *((op, peer - rank, shape, dtype) for op, peer, shape, dtype in act.messages))
        for act in acts
    ]  # fmt: skip


def _cut(acts: Mapping[int, Sequence[Act]], kinds: Mapping[int, Sequence[Hashable]]) -> dict[int, list[Act]]:
    """Leave out what came before the last few repetitions: whole steps of all ranks."""
    lead = max(acts, key=lambda rank: (sum(act.over for act in acts[rank]), -rank))
    index = group_pairs((step, (rank, at)) for rank in acts for at, act in enumerate(acts[rank]) for step in act.steps)

    def close(ends: Mapping[int, int]) -> dict[int, int]:
        """Return how many acts of each rank came before these; of none, if one of them is the hang."""
        cut, pending = dict.fromkeys(acts, 0), [*ends.items()]
        while pending:
            rank, end = pending.pop()
            for act in acts[rank][cut[rank] : end]:
                pending += [(other, at + 1) for step in act.steps for other, at in index[step] if at >= cut[other]]
            cut[rank] = max(cut[rank], end)
        hangs = any(not act.over for rank, ours in acts.items() for act in ours[: cut[rank]])
        return dict.fromkeys(acts, 0) if hangs else cut

    first = _find_start([kind for kind, act in zip(kinds[lead], acts[lead], strict=True) if act.over])
    cut = close({lead: first})
    if cut[lead]:  # the others, too, begin after a call like the last one that is left out
        last, ends = kinds[lead][first - 1], {lead: first}
        for rank in acts:
            after = range(max(0, cut[rank] - 1), len(kinds[rank]))
            ends.setdefault(rank, next((at + 1 for at in after if kinds[rank][at] == last), 0))
        aligned = close(ends)
        cut = aligned if aligned[lead] == first else cut
    return {rank: [*ours[cut[rank] :]] for rank, ours in acts.items()}


def _find_start(kinds: Sequence[Hashable]) -> int:
    """Return the index from which a rank repeats its last complete steps a few times, and then breaks off.

    A step contains each kind of call that the rank makes more than once, if such steps repeat.
    """
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    recent = [numbers[kind] for kind in kinds[-_MOST_SEARCHED:]]
    usual, starts = {kind for kind, count in Counter(recent).items() if count > 1}, list[int]()
    for period in range(1, len(recent) // 2 + 1):
        for end in range(len(recent), max(2 * period, len(recent) - period) - 1, -1):
            first = end - period  # the first step begins where the repetition begins, if the dump shows that
            while first > 0 and recent[first - 1] == recent[first - 1 + period]:
                first -= 1
            rounds = (end - first) // period
            if rounds > 1:
                starts.append(first + max(0, rounds - _ROUNDS) * period)
                if usual <= {*recent[end - period : end]}:
                    return len(kinds) - len(recent) + starts[-1]
                break
    return len(kinds) - len(recent) + (starts[0] if starts else max(0, len(recent) - _MOST_CALLS))


def _reduce(classes: Sequence[set[int]], groups: Sequence[Sequence[Members]], chains: Sequence[set[int]]) -> set[int]:
    """Return the ranks to keep: two of each class, groups of one size in each family, and all of a chain or none.

    Args:
        classes: ranks that behave alike.
        groups: the groups of each family.
        chains: ranks that send each other messages.
    """
    sets, kept = [[{*ranks} for ranks in family] for family in groups], set().union(*classes)
    slices = [{*ranks} for family in groups for ranks in zip(*family, strict=True)]
    parts = [*slices, *chain.from_iterable(sets), *chains, *({rank} for rank in kept)]
    for part in sorted(parts, key=lambda one: (-len(one), -min(one))):
        rest = kept - part
        sizes = [{len(ranks & rest) for ranks in family} - {0} for family in sets]
        if (
            all(len(ranks & rest) >= min(2, len(ranks)) for ranks in classes)
            and all(len(ranks & rest) in (0, len(ranks & kept)) for ranks in chains)
            and all(len(now) <= 1 and 1 not in now for now in sizes)
        ):
            kept = rest
    return kept


def _find_chains(acts: Mapping[int, Sequence[Act]]) -> list[set[int]]:
    """Return sets of ranks that send each other messages, directly or through others."""
    chains: list[set[int]] = []
    for rank, ours in acts.items():
        ends = {rank, *(peer for act in ours for _, peer, _, _ in act.messages)}
        if len(ends) > 1:
            ends.update(*(one for one in chains if one & ends))
            chains = [*(one for one in chains if not one & ends), ends]
    return chains


# -- the script

_CALLS = {
    "all_reduce": "{ones}", "broadcast": "{ones}, src={root}", "reduce": "{ones}, dst={root}", "barrier": "",
    "all_gather": "list({empty_each}), {ones}", "all_gather_into_tensor": "{empty_all}, {ones}",
    "gather": "{ones}, list({empty_each}) if rank == {root} else None, dst={root}",
    "scatter": "{empty}, list({ones_each}) if rank == {root} else None, src={root}",
    "reduce_scatter": "{empty}, list({ones_each})", "reduce_scatter_tensor": "{empty}, {ones_all}",
    "all_to_all": "list({empty_each}), list({ones_each})", "all_to_all_single": "{empty_all}, {ones_all}",
}  # fmt: skip
"""Arguments of each operation of gloo: tensors like those of one rank, `_each` by rank, `_all` joined."""
_SPLIT = ("all_to_all", "all_to_all_single")
_SUMS = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor")
"""Gloo makes each of these out of the same messages, so it does not keep them apart."""
_ON_GLOO = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
_OTHER_DTYPES = {"int16": "float16", "uint16": "float16", "uint32": "int32", "uint64": "int64", "": "float32",
                 "complex64": "float64", "complex32": "float32"}  # fmt: skip
"""Gloo refuses these in some collectives; another dtype of the same size does. Those of one byte become uint8."""
_USED = ("rank", "dist", "time", "torch", "pending", "work", "create_groups")
"""Names in scripts."""


def _fill(template: str, **facts: Any) -> str:
    """Fill a template of this folder."""
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    filled: str = Template(text, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True).render(**facts)
    return filled


def _replace_op(name: str) -> str:
    """Return the operation that the script calls instead of one that gloo lacks, or that the lab does not know."""
    name = name.removesuffix("_coalesced")
    return name if name in _CALLS else "barrier"


def _form(act: Act) -> tuple[Hashable, ...]:
    """Return what calls that meet have in common, for gloo first."""
    op = _replace_op(act.op)
    return op in _SUMS or op, op, () if op in (*_SPLIT, "barrier") else (prod(act.shape), act.dtype)


def make_replica(calls: Calls, name: str, culprits: Collection[int], reason: str) -> Replica:
    """Return a scenario that hangs as the job did.

    Args:
        calls: of the job.
        name: of the job.
        culprits: the ranks that the dumps blame.
        reason: why it hung, for people.

    Raises:
        UsageError: no call is in progress, or too many ranks behave differently.
    """
    acts = read_acts(calls)
    if all(act.over for ours in acts.values() for act in ours):
        raise UsageError(f"the dumps of {name} show no call in progress, so there is no hang to reproduce")
    families = _find_families(acts, calls.descriptions)
    cut = _cut(acts, {rank: _kinds(rank, ours, families) for rank, ours in acts.items()})
    families = _find_families(cut, calls.descriptions)
    groups = [[members for _, members in family] for family in families]
    roles = {rank: frozenset(at for at, one in enumerate(groups) if rank in {*chain(*one)}) for rank in cut}
    kinds = {rank: (roles[rank], tuple(_kinds(rank, ours, families))) for rank, ours in cut.items()}
    classes = [{*ranks} for ranks in group_pairs((kinds[rank], rank) for rank in cut).values()]
    kept = sorted(_reduce(classes, groups, _find_chains(cut)))
    class_of = {rank: ranks for ranks in classes for rank in ranks}
    if len(kept) > MOST_RANKS:
        what = f"{len(kept):,} of its {len(acts):,} ranks behave differently"
        raise UsageError(f"{name} cannot be reproduced: {what}; allowed: {MOST_RANKS}")
    script = _Script({rank: cut[rank] for rank in kept}, families, calls)
    ranks = [*_name_ranks(script.new, class_of)] if len(kept) < len(acts) else []
    fewer = f", with {len(kept)} ranks instead of {len(acts):,}" if ranks else ""
    title = f"Hang as a job did{fewer}; made from its flight recorder dumps."
    text = script.write("\n".join([title, "", *ranks, ""] if ranks else [title]))
    alike = {script.new[rank]: (rank, *sorted(class_of[rank] - {rank})) for rank in kept}
    about = f"{capitalize_first(reason)}. {' '.join(ranks)}".strip()
    scenario = script.write_scenario(name, [script.new[rank] for rank in culprits if rank in script.new], about)
    has_pending = frozenset(script.new[rank] for rank, ended in script.ended_alone.items() if ended)
    return Replica(script=text, scenario=scenario, size=len(acts), alike=alike, waits=script.waits,
                   has_pending=has_pending, notes=tuple(script.notes))  # fmt: skip


def _name_ranks(new: Mapping[int, int], class_of: Mapping[int, set[int]]) -> Iterator[str]:
    """Yield sentences that say which ranks of the job the ranks of the script are."""
    for ranks in group_pairs((min(class_of[rank]), rank) for rank in new).values():
        others = class_of[ranks[0]] - {*ranks}
        stand = f", and {'stand' if len(ranks) > 1 else 'stands'} for {name_ranks(others)}" if others else ""
        here = capitalize_first(name_ranks(new[rank] for rank in ranks))
        yield f"{here} here: {name_ranks(ranks)} of the job{stand}."


class _Script:
    """The script of ranks with these acts; ranks of the job are keys, `new` has their numbers in the script."""

    def __init__(self, acts: Mapping[int, Sequence[Act]], families: Sequence[Sequence[Group]], calls: Calls) -> None:
        self.acts, self.new = acts, {rank: number for number, rank in enumerate(acts)}
        self.waits = {self.new[rank]: self._wait(ours) for rank, ours in acts.items()}
        self.notes: dict[str, None] = {}
        self._second_groups: dict[Hashable, tuple[str, Members]] = {}
        """Variable and ranks of further groups of the same ranks, one for each form of call."""
        self._there: dict[Hashable, dict[int, Act]] = defaultdict(dict)
        for rank, ours in acts.items():
            for act in ours:
                for step in act.steps:
                    self._there[step][rank] = act
        everything = [act for ours in acts.values() for act in ours]
        on_gloo = all(entry.backend == "gloo" for entries in calls.by_rank.values() for entry in entries)
        self._strict = not on_gloo and all(act.over for ours in acts.values() for act in ours[:-1])
        """Whether the rules of NCCL hold; a call that ends before an earlier one breaks them."""
        self.ended_alone = {rank: self._find_ended_alone(ours) for rank, ours in acts.items()}
        """The last complete acts of each rank, if other ranks did something else or are not through."""
        if any(self.ended_alone.values()):
            self.notes["NCCL ended calls that met other calls: the script does not wait for them"] = None
            self._strict = False
        self._share = min((prod(act.shape) // len(act.group[1]) for act in everything if act.op in _SPLIT), default=1)
        sizes = {prod(shape) for act in everything for shape in [act.shape, *(one[2] for one in act.messages)]}
        self._sizes = {size: number for number, size in enumerate(sorted(sizes - {*range(_LARGEST)}), _LARGEST)}
        ends = {self.new[end] - self.new[rank] for rank in acts for act in acts[rank] for _, end, _, _ in act.messages}
        self._is_ring = any(0 < end < len(acts) - end and end - len(acts) in ends for end in ends)
        self._variables: dict[Group, str] = {}
        self._created: dict[str, list[Members]] = {}
        """The groups that each variable has."""
        for family in families:
            groups = {group: ranks for group in family if (ranks := self._kept(group[1]))}
            about, size = calls.descriptions.get(family[0][0], ""), len(next(iter(groups.values())))
            word = _SEPARATORS.sub("_", about.replace(UNDESCRIBED, "").lower()).strip("_") or "group"
            word = f"{word}_group" if keyword.iskeyword(word) or hasattr(builtins, word) or word in _USED else word
            word = word if word not in self._created and not word[0].isdigit() else f"group_{len(self._created) + 1}"
            is_world = size == len(acts) and (about == DEFAULT_GROUP or family[0][0] == "0")
            self._variables.update(dict.fromkeys(groups, "" if is_world else word))
            if not is_world:
                self._created[word] = [*groups.values()]

    def _kept(self, members: Iterable[int]) -> Members:
        return tuple(self.new[rank] for rank in members if rank in self.new)

    def _wait(self, acts: Sequence[Act]) -> Wait | None:
        act = next((act for act in acts if not act.over), None)
        if act is None or act.op:
            return act and (frozenset([_replace_op(act.op)]), frozenset(self._kept(act.group[1])))
        return frozenset(one[0] for one in act.messages), frozenset(self.new[one[1]] for one in act.messages)

    def _find_ended_alone(self, acts: Sequence[Act]) -> list[Act]:
        ended: list[Act] = []
        for act in reversed([act for act in acts if act.over and self._strict]):
            others = (self._there[act.steps[0]].get(rank) for rank in act.group[1] if rank in self.new)
            if not act.op or all(other and other.over and _form(other) == _form(act) for other in others):
                break
            ended.append(act)
        return ended

    # -- calls

    def _tensor(self, function: str, shape: Sequence[int], dtype: str) -> str:
        known = dtype if dtype in _ON_GLOO else _OTHER_DTYPES.get(dtype, "uint8")
        if known != (dtype or known):
            self.notes[f"gloo lacks {dtype}: the script uses {known}"] = None
        sizes = ", ".join(map(str, shape)) or "()"
        return f"torch.{function}({sizes}{f', dtype=torch.{known}' if known != 'float32' else ''})"

    def _cap(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self._sizes[prod(shape)],) if prod(shape) in self._sizes else shape

    def _collective(self, rank: int, act: Act) -> str:
        op, members = _replace_op(act.op), self._kept(act.group[1])
        if op != act.op:
            self.notes[f"gloo lacks {act.op}: the script calls {op}"] = None
        shape = self._cap(act.shape)
        if op in _SPLIT:
            self.notes[f"dumps lack the splits of {op}: the script has equal ones"] = None
            shape = (min(max(1, self._share), _LARGEST),)
        variable = self._variables[act.group]
        if self._needs_second_group(rank, act):
            key = (members, *_form(act))
            variable, _ = self._second_groups.setdefault(key, (f"second_{len(self._second_groups) + 1}", members))
        there = self._there[act.steps[0]]
        roots = [self.new[one] for one, other in there.items() if other.root]
        if not (roots or self._strict):  # with gloo, receivers wait for the root only
            roots = [one for one in members if one not in {self.new[other] for other in there}]
        at = members.index(roots[0]) if roots else 0
        shapes = {"": shape, "_each": (len(members), *shape), "_all": (len(members) * prod(shape[:1]), *shape[1:])}
        words = {f"{function}{end}": self._tensor(function, of, act.dtype) for function in ("ones", "empty")
                 for end, of in shapes.items()}  # fmt: skip
        root = f"dist.get_global_rank({variable}, {at})" if variable else str(at)
        arguments = [_CALLS[op].format_map({**words, "root": root}), f"group={variable}" if variable else ""]
        return f"dist.{op}({', '.join(filter(None, arguments))})"

    def _needs_second_group(self, rank: int, act: Act) -> bool:
        """Return whether gloo would not keep a call apart from the different calls of most other ranks."""
        there = self._there[act.steps[0]]
        if self.ended_alone[rank] and (act in self.ended_alone[rank] or not act.over):
            return True
        if any(other.over for other in there.values()):
            return False
        forms = {one: _form(other) for one, other in there.items()}
        mine, (usual, _) = forms[rank], Counter(forms[one] for one in sorted(forms)).most_common(1)[0]
        if mine == usual or mine[0] != usual[0]:
            return False
        what = "sizes or dtypes that differ" if mine[1] == usual[1] else f"{mine[1]} and {usual[1]} in one step"
        self.notes[f"gloo does not wait, but fails, with {what}: the script uses two groups"] = None
        return True

    def _line(self, rank: int, act: Act, *, waits: bool) -> str:
        """Return the lines of an act; without `waits` the rank continues although the call hangs."""
        if act.op:
            call = self._collective(rank, act)
            return call if waits else f"pending.append({call[:-1]}{', ' * (call[-2] != '(')}async_op=True))"
        ends = []
        for op, peer, shape, dtype in act.messages:
            distance = self.new[peer] - self.new[rank]
            end = f"(rank + {distance % len(self.new)}) % {len(self.new)}" if self._is_ring else (
                f"rank {'+' if distance > 0 else '-'} {abs(distance)}")  # fmt: skip
            ends.append((op, f"{self._tensor('ones' if op == 'send' else 'empty', self._cap(shape), dtype)}, {end}"))
        if len(ends) == 1:
            (op, arguments), start = ends[0], "" if waits else "i"
            return f"dist.{op}({arguments})" if waits else f"pending.append(dist.{start}{op}({arguments}))"
        batch = (
            f"dist.batch_isend_irecv([{', '.join(f'dist.P2POp(dist.i{op}, {arguments})' for op, arguments in ends)}])"
        )
        return f"for work in {batch}:\n    work.wait()" if waits else f"pending += {batch}"

    # -- files

    def write(self, title: str) -> str:
        """Return the text of the script."""
        over, hung = dict[int, list[str]](), dict[int, list[str]]()
        for rank, acts in self.acts.items():
            is_last = len(acts) - 1
            alone = self.ended_alone[rank]
            lines = [
                self._line(rank, act, waits=at == is_last or (act.over and act not in alone))
                for at, act in enumerate(acts)
            ]
            count = len(lines) - (bool(acts) and not acts[-1].over)
            over[rank] = lines[:count]
            hung[rank] = [f"{line}  # hangs; {acts[-1].source} of the job" for line in lines[count:]]
        same = next((at for at, lines in enumerate(zip(*over.values(), strict=False)) if len({*lines}) > 1),
                    min(map(len, over.values())))  # fmt: skip
        first = over[min(over)][:same]
        body = [*_loops(first), *self._branches({rank: (*_loops(over[rank][same:]), *hung[rank]) for rank in over})]
        created = [(word, [*map(list, groups)]) for word, groups in self._created.items()]
        created += [(word, [[*one]]) for word, one in self._second_groups.values()]
        by_lists, pending = any(len(groups) > 1 for _, groups in created), any("pending" in line for line in body)
        return _fill("replica.py.j2", title=title, created=created, by_lists=by_lists, pending=pending, body=body)

    def _branches(self, lines: Mapping[int, tuple[str, ...]]) -> Iterator[str]:
        """Yield the lines in which ranks differ; the most common ones come last."""
        groups = group_pairs((ours, self.new[rank]) for rank, ours in lines.items())
        if len(groups) == 1:
            yield from next(iter(groups))
            return
        silent = groups.pop((), [])
        for number, (ours, ranks) in enumerate(sorted(groups.items(), key=lambda one: len(one[1])), 1):
            where = f"rank == {ranks[0]}" if len(ranks) == 1 else f"rank in {tuple(ranks)}"
            if len(groups) == 1 and len(silent) < len(ranks):
                where = f"rank != {silent[0]}" if len(silent) == 1 else f"rank not in {tuple(silent)}"
            yield "else:" if number == len(groups) > 1 and not silent else f"{'el' * (number > 1)}if {where}:"
            yield from _indent(ours)

    def write_scenario(self, name: str, culprits: Sequence[int], about: str) -> str:
        """Return the text of the scenario; it expects culprits only if others wait for their call."""
        ops = sorted({op for wait in self.waits.values() if wait for op in wait[0]})
        name = _SEPARATORS.sub("-", name.lower()).strip("-")[:_LONGEST_NAME] or "dumps"
        size, alone = len(self.new), [rank for rank in culprits if self.waits[rank] is None]
        facts = {"size": size, "timeout_s": _TIMEOUT_S + size // 4, "strict": self._strict, "culprits": alone}
        return _fill("replica.yaml.j2", name=name, about=json.dumps(about), script=SCRIPT, ops=ops, **facts)


def _indent(lines: Iterable[str]) -> Iterator[str]:
    yield from (f"    {part}" for line in lines for part in line.split("\n"))


def _loops(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines with a loop in place of repetitions."""
    yield from _write_loops(fold_repeats(lines, len(lines)))


def _write_loops(items: Iterable[str | Repeated]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            yield f"for _ in range({item.times}):"
            yield from _indent(_write_loops(item.items))


# -- whether it hangs in the same way


def find_differences(replica: Replica, evidence: Evidence) -> list[str]:
    """Return in which ranks a run of the scenario hung differently, one sentence each."""
    differences = []
    for rank, wait in replica.waits.items():
        pending = [call for call in evidence.calls(rank) if call.state != "completed"]
        call = next(iter(pending[-1:] if rank in replica.has_pending else pending), None)
        step = evidence.step(call) if call is not None else None
        is_message = step is not None and step.message
        members = {*(step.expected if step is not None else ())} - ({rank} if is_message else set())
        if call is None or call.error:
            actual = f"failed in {call.op}" if call is not None else "does not hang in a call"
        else:
            actual = f"hangs in {call.op} with {name_ranks(members)}"
        if wait is None or call is None or call.error:
            is_same = wait is None and call is None
        else:
            is_same = call.op in wait[0] and (members <= wait[1] if is_message else members == wait[1])
        if not is_same:
            should = (
                f"hang in {' or '.join(sorted(wait[0]))} with {name_ranks(wait[1])}" if wait else "make no further call"
            )
            differences.append(f"rank {rank} {actual}; it should {should}")
    return differences
