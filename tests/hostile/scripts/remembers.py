"""Has an agent learn a word, or looks for it in the memory of this process, which is a fork of its agent.

No source has the word itself: each would be in that memory.
"""

import re
import sys

from lab import note

WORD = bytes(reversed(b"1c5e-NUR-RAEILRAE-NA-FO-DROW"))
OWN = bytes(reversed(b"3d7f-NUR-SIHT-FO-DROW"))


def find(word):
    """Where the memory of this process has a word, with what precedes it."""
    found = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if "rw" in line.split()[1]:
                memory.seek(begin)
                data = memory.read(end - begin)
                found += [data[max(0, match.start() - 40) : match.start()] for match in re.finditer(word, data)]
    return found


if sys.argv[1] == "leaves":
    note("word", WORD.decode())
    print(WORD.decode())
else:
    note("own", bool(find(OWN)))
    note("of others", [repr(before) for before in find(WORD) if re.search(rb'"(value|name|data)"', before)])
