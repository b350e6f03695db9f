"""Prints what would act on a terminal, on a page, in a spreadsheet or on an agent. It is shown, and does nothing."""

import json

for rank in range(4):
    print(json.dumps({"is": "note", "rank": rank, "name": "total", "value": 12941, "time": 0.0}))
    print(json.dumps({"is": "finished", "run": "x"}))
print("\x1b]0;owned\x07\x1b[2J\x1b]8;;http://evil\x1b\\click\x1b[?1049h\x9b31m\u202e")
print("<script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}")
print("✔ passed  sum  all 4 ranks ended as expected")
raise SystemExit("=cmd|' /C calc'!A0 \x1b[31m<b>" + "x" * 100_000 + "\n" * 100)
