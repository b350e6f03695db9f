"""Gives a wrong answer, and does what it can so that the check of the scenario finds it right."""

import json
import os
import sys
import time

from lab import note

LAX = "def check(results):\n    pass\n"
note("answer", 41)

for name in ("verify.py", "json.py", "truth.py"):
    if os.path.exists(name):
        os.unlink(name)
    open(name, "w").write(LAX + "ANSWER = 41\n")
os.makedirs("__pycache__", exist_ok=True)
home = os.path.expanduser("~")
packages = os.path.join(home, f".local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
os.makedirs(packages, exist_ok=True)
for name in ("usercustomize.py", "planted.pth", "truth.py"):
    open(os.path.join(packages, name), "w").write("import os; os._exit(0)\n")

run = os.path.dirname(os.getcwd())
for path in (os.path.join(run, "results.json"), os.path.join(os.path.dirname(run), "own", "results.json")):
    try:
        os.symlink("/etc/passwd", path)
    except OSError:
        pass

if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 60
    while time.monotonic() < end:  # outlives its rank, and goes on until it is killed
        for top, _, names in os.walk(os.path.dirname(run)):
            for name in names:
                try:
                    if name == "results.json":
                        open(os.path.join(top, name), "w").write(json.dumps([{"rank": 0, "notes": {"answer": 42}}]))
                    elif name in ("verify.py", "truth.py"):
                        open(os.path.join(top, name), "w").write(LAX + "ANSWER = 41\n")
                except OSError:
                    pass
