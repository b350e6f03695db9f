"""Looks for the check, its files, and the work of others in its own memory: it is a fork of the agent that had them."""

import json
import re

MARKS = (
    "-".join(("SECRET", "OF", "THE", "ASSIGNMENT")),
    " ".join(("the", "sum", "is", str(12940 + 1))),
    '"name":' + '"total"',
)
found = []
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps:
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if line.split()[1].startswith("rw"):
            memory.seek(begin)
            data = memory.read(end - begin)
            for mark in MARKS:
                around = [data[max(0, at.start() - 20) : at.end() + 20] for at in re.finditer(mark.encode(), data)]
                found += [repr(one) for one in around if one.count(b"\0") < 8]
print("found:", json.dumps(found))
