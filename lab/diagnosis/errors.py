"""Read the texts of errors: the problem, whether a peer was lost, the missing module, and the cause."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lab.diagnosis.evidence import Judgement
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.finding import find_majority
from lab.diagnosis.wording import DeviatingCall, way_to_get_file, way_to_get_module
from lab.operations import OPERATIONS
from lab.words import clip_end, clip_middle, join_words

_LONGEST = 160
_FRAMES = re.compile(r"^(?:Exception raised from |C\+\+ CapturedTraceback|frame #\d+|#\d+ )", re.MULTILINE)
"""C++ stack traces that PyTorch appends for its own developers."""
_ADVICE = re.compile(
    r"(?:In addition, )?you can set the environment variable|^For debugging consider|^Compile with |^Device-side assert"
    r"|^To suppress|^If you already have done|^Original Traceback|^CUDA kernel errors might|^Search for `",
    re.IGNORECASE,
)
"""Beginnings of lines that give advice and do not describe the problem."""
_ALWAYS_SAID = re.compile(r"\. This is typically caused by a remote .*? GLHF! \S*| If reserved but unallocated .*")
_PARAMETERS = re.compile(r"^(?:Parameters? |Parameter indices )", re.MULTILINE)
_SOURCE_OF_TORCH = re.compile(r"\[/[^\]\s]*\.(?:cc|cpp|h|hpp):\d+\] ?")
_UNNAMED = re.compile(
    r"Parameter indices which did not receive grad for rank \d+: (?P<several>\d+(?:[ ,]+\d+)*)"
    r"|Parameter at index (?P<one>\d+)(?! with name)|params\[(?P<place>\d+)\]"
)


def shorten_error(error: str, names: Callable[[], Sequence[str]], *, brief: bool = False) -> str:
    """Return an exception as one line.

    Args:
        error: Text of the exception.
        names: Returns the parameter names of the module whose parameters DDP may mention by index; empty if unknown.
        brief: Cut an error of one line, too.
    """
    text = without_remarks(error.strip())
    if not (lines := [line.strip() for line in _FRAMES.split(text)[0].splitlines() if line.strip()]):
        return text.partition("\n")[0]
    first, telling = lines[0], _telling(lines[1:])
    last = telling or first
    last = _with_names(last, names()) if _UNNAMED.search(last) else last
    if not telling:
        return clip_middle(last, _LONGEST) if brief else last
    end = first.rfind(". ", 0, _LONGEST)  # as many full sentences as fit
    begun = first if len(first) <= _LONGEST else first[: end + 1] if end > 0 else clip_end(first, _LONGEST)
    return f"{begun} … {clip_middle(last, _LONGEST)}"


def without_remarks(error: str) -> str:
    """Return an exception without the paths of PyTorch's own sources, and without the advice that it always gives."""
    return _ALWAYS_SAID.sub("", _SOURCE_OF_TORCH.sub("", error))


def _telling(rest: Sequence[str]) -> str:
    """Return the line that names parameters, or else the last line that describes the problem; empty if none does."""
    named = [line.partition(". ")[0] for line in rest if _PARAMETERS.search(line)]
    last = [line for line in rest if not _ADVICE.search(line) and not line.startswith(('File "', "^", "~"))]
    return (named or last or [""])[-1]


def _with_names(text: str, names: Sequence[str]) -> str:
    """Add the names of the parameters that a text mentions by index."""

    def named(match: re.Match[str]) -> str:
        indices = [int(number) for number in re.findall(r"\d+", match["several"] or "")]
        numbers = indices or [int(match["one"] or match["place"])]
        if any(number >= len(names) for number in numbers):
            return match[0]
        shown = join_words(names[number] for number in numbers[:8]) + (", …" if len(numbers) > 8 else "")
        return f"{match[0]} ({shown})"

    return _UNNAMED.sub(named, text)


# -- errors of torch.distributed about other ranks: a lost peer, or a different call


_PEER_LOST = re.compile(
    r"Connection (?:closed by peer|reset by peer|refused|abort)|Broken pipe|Read error|pair closure|connectFullMesh"
    r"|(?:recvValue|recvVector|sendBytes) failed|failed to recv, got 0 bytes|DistNetworkError|socket (?:was )?closed"
    r"|(?:client socket has|Operation) timed out|timed out (?:waiting|after|in monitored)|ncclRemoteError"
    r"|(?:wait|socket|barrier) timeout|remote process (?:has )?(?:exited|terminated)|failed to pass monitoredBarrier",
    re.IGNORECASE,
)
"""Messages of torch.distributed in a rank that failed because another rank failed."""
_GAVE_UP = re.compile(r"timed out|(?:wait|socket|barrier) timeout|failed to pass monitoredBarrier", re.IGNORECASE)
"""Messages of gloo when a rank waited for its whole time limit."""
_TIME_OUT = re.compile(r"tim(?:ed|e)[ -]?out|^SystemExit", re.IGNORECASE)
_BY_TORCH = re.compile(r"^(?:RuntimeError|torch\.distributed\.[\w.]+): ", re.MULTILINE)
"""Beginning of an exception that torch.distributed raises; a script's own broken pipe is no RuntimeError."""
_TRACEBACK_START = "Traceback (most recent call last):\n"
_RUNNING = re.compile(
    r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, )?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=(?P<shape>\[[^\]]*\]))?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
_DTYPES = {"Double": "float64", "Float": "float32", "Half": "float16", "Int": "int32", "Long": "int64"}


def lost_a_peer(rank: RankFacts) -> bool:
    """Return whether a rank failed because it lost a peer, even if it then raised another error."""
    texts = (rank.error, *rank.traceback.split(_TRACEBACK_START))
    return any((raised := _BY_TORCH.search(text)) and _PEER_LOST.search(text, raised.end()) for text in texts)


def has_timed_out(rank: RankFacts) -> bool:
    """Return whether a rank that lost a peer had only waited too long for it."""
    return lost_a_peer(rank) and _GAVE_UP.search(rank.error) is not None


def seems_timed_out(rank: RankFacts) -> bool:
    """Return whether a rank ended like a script that waited too long: by its own exit, or with a time-out error."""
    return (rank.raised is None and not rank.signal) or _TIME_OUT.search(rank.error) is not None


def is_loss(error: str) -> bool:
    """Return whether the error of a call means that a peer was lost, not that PyTorch refused the call."""
    return _PEER_LOST.search(error) is not None


def failed_in_torch(rank: RankFacts) -> bool:
    """Return whether a rank failed inside torch.distributed, so that the arguments of a peer may be the reason."""
    return rank.signal == "SIGABRT" or (_BY_TORCH.search(rank.error) is not None and not rank.out_of_memory)


_NAMED = re.compile(
    r"(?<!from )(?<!with )(?<!than )(?<!like )(?<!to )(?<!of )\brank(?:s?[ =:#]*(?P<one>\d+)\b"
    r"|s[ =:]*(?:dict_keys\()?[\[({](?P<several>[\d, ]+)[\])}])|[{,] ?(?P<key>\d+): ?['\"(<]*\w*(?:Error|Exception)\b",
    re.IGNORECASE,
)
"""Ranks in the text of an error: `rank 2`, `ranks [1, 3]`, `{1: ValueError(...)}`. Others are only compared with."""


def find_named_ranks(error: str) -> set[int]:
    """Return the ranks that an error names; nothing if it tells about several, one after the other."""
    named = [{*map(int, re.findall(r"\d+", match[match.lastgroup or 0]))} for match in _NAMED.finditer(error)]
    largest = max(named, key=len, default=set[int]())
    return largest if set().union(*named) == largest else set()


def is_same_error(one: RankFacts, other: RankFacts) -> bool:
    """Return whether two ranks raised the same error, in which each may name itself."""
    texts = [re.sub(rf"\brank {rank.rank}\b", "rank", rank.error, flags=re.IGNORECASE) for rank in (one, other)]
    return texts[0] == texts[1]


def find_deviating_call(ranks: Iterable[RankFacts]) -> DeviatingCall | None:
    """Return the rank whose call differs, according to the errors of ranks.

    Return None without such an error or without a majority.
    """
    matches = [match for rank in ranks for match in _RUNNING.finditer(rank.error)]
    calls = {int(match["rank"]): _call(match["op"], match["shape"], match["dtype"]) for match in matches}
    common, deviating = find_majority(calls)
    return DeviatingCall(ranks=deviating[:1], call=calls[deviating[0]], common=common) if deviating and common else None


def _call(op: str, shape: str | None, dtype: str | None) -> str:
    what = next((row.name for row in OPERATIONS.values() if row.c10d == op), op.lower())
    return f"{what} of {_DTYPES.get(dtype, dtype.lower())} {shape or ''}".rstrip() if dtype else what


# -- modules that a rank could not import: whose they are, and how they get to the nodes


_MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z_]\w*)'$")
"""For `a.b`, the package `a` exists."""


def missing_module(error: str) -> str:
    """Return the name of the module that an exception reports as missing; empty for other exceptions."""
    match = _MISSING.match(error.strip().partition("\n")[0])
    return match[1] if match and match[1] not in sys.stdlib_module_names else ""


_NO_FILE = re.compile(r"FileNotFoundError: \[Errno 2\] No such file or directory: '([^']+)'$")


def missing_file(error: str) -> str:
    """Return the path that an exception reports as missing; empty for other exceptions."""
    match = _NO_FILE.match(error.strip().partition("\n")[0])
    return match[1] if match else ""


def way_to_missing(facts: RunFacts, rank: RankFacts) -> str:
    """Return a clause with the fix for a module or file that a rank did not find; empty for other errors.

    A file of the user cannot be installed: it must be in the folder that is shipped.
    """
    if module := missing_module(rank.error):
        return way_to_get_module(facts.not_shipped.get(module))
    own = facts.not_shipped.get(missing_file(rank.error))
    return way_to_get_file(own) if own is not None else ""


# -- the cause of a culprit in one word, from its node, its process, and its error


_BY_ERROR = {
    "loader_killed": r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal|exited unexpectedly)",
    "disk_full": r"\[Errno (?:28|122)\]|No space left on device|Disk quota exceeded",
    "out_of_memory": r"^(?:MemoryError|numpy\.\S*MemoryError|torch\.OutOfMemoryError|torch\.cuda\.OutOfMemoryError)\b"
    r"|CUDA error: out of memory|can't allocate memory|Cannot allocate memory|\[Errno 12\]",
    "name_resolution": r"gaierror|Name or service not known|Temporary failure in name resolution"
    r"|No address associated with hostname|getaddrinfo failed|(?:can not|cannot) resolve",
    "not_a_number": r"\bnan\b|not a number|(?:not|non-?)\s?finite|\binf(?:inity|inite)?\b",
}
"""Cause -> pattern in the text of an error, the most specific first."""
_OF_ERRORS = {cause: re.compile(pattern, re.IGNORECASE) for cause, pattern in _BY_ERROR.items()}


def with_cause(judgement: Judgement, facts: RunFacts) -> Judgement:
    """Add the cause to a judgement's culprit, if it has none."""
    culprit = judgement.culprit
    rank = next((rank for rank in facts.ranks if culprit is not None and rank.rank == culprit.rank), None)
    if culprit is None or culprit.cause or rank is None:
        return judgement
    alive = "never_came" if judgement.verdict == "hung" else "late"
    cause = _cause_of_end(rank) if rank.failed else "left_early" if rank.left else alive
    return replace(judgement, culprit=replace(culprit, cause=cause))


def _cause_of_end(rank: RankFacts) -> str:
    if rank.out_of_memory or (rank.signal and rank.raised is None):
        return "out_of_memory" if rank.out_of_memory else "killed"
    if not (cause := error_cause(rank.error)) and lost_a_peer(rank):
        return "time_out" if has_timed_out(rank) else "connection_lost"
    return cause or ("exception" if rank.error and not rank.error.startswith("SystemExit") else "exit")


def error_cause(error: str) -> str:
    """Return the cause that the text of an error shows; empty if it shows none."""
    return next((cause for cause, pattern in _OF_ERRORS.items() if pattern.search(error)), "")
