"""Prints, as one line of JSON, everything that a script can see of how it was started."""

import inspect
import json
import os
import sys

facts = {
    "environment": dict(os.environ),
    "argv": sys.argv,
    "argv0_is_file": os.path.samefile(sys.argv[0], __file__),
    "file": __file__,
    "name": __name__,
    "package": globals().get("__package__", "missing"),
    "spec_is_none": globals().get("__spec__", "missing") is None,
    "main_is_me": sys.modules["__main__"].__dict__ is globals(),
    "globals": sorted(name for name in globals() if name.startswith("__")),
    "path0_is_folder_of_script": os.path.samefile(sys.path[0], os.path.dirname(os.path.abspath(__file__))),
    "stdin_is_a_terminal": sys.stdin.isatty(),
    "stdin": sys.stdin.read(),
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding],
    "descriptors_are_inheritable": [os.get_inheritable(fd) for fd in (0, 1, 2)],
    "source_can_be_found": "source_can_be_found" in inspect.getsource(sys.modules["__main__"]),
    "flags": str(sys.flags),
    "recursion_limit": sys.getrecursionlimit(),
    "files_beside_it": sorted(os.listdir(os.path.dirname(os.path.abspath(__file__)))),
}
print("FACTS " + json.dumps(facts), flush=True)
