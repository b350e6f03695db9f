"""The words that every explanation uses."""

from __future__ import annotations

from collections.abc import Iterable


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0 and 2`, `ranks 0, 1 and 5`, `ranks 0-7`."""
    ranks = sorted(ranks)
    if not ranks:
        return "no rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def listing(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`; each once, in their order."""
    words = list(dict.fromkeys(word for word in words if word))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def plural(count: int, one: str, many: str = "") -> str:
    """`1 call`, `3 calls`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def was(ranks: Iterable[int]) -> str:
    """The verb that goes with so many ranks."""
    return "was" if len(list(ranks)) == 1 else "were"


def capital(sentence: str) -> str:
    """The sentence with a capital letter."""
    return sentence[:1].upper() + sentence[1:]
