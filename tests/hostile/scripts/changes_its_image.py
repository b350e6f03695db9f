"""Changes what an image leaves open to all. Argument: what of it, or `leaves`: puts files beside."""

import os
import sys

from lab import note

CODE = "raise SystemExit(77)\n"
what = sys.argv[1]
note("was", sorted(os.listdir("/opt/app")))
note("program", open("/opt/app/program/main.py").read())
note("settings", open("/opt/settings").read())
if what == "moves":
    os.rename("/opt/app/tool.py", "/opt/app/.tool.py")
elif what == "replaces":
    os.unlink("/opt/app/tool.py")
    open("/opt/app/tool.py", "w").write(CODE)
elif what == "writes":
    open("/opt/settings", "w").write(CODE)
elif what == "leaves":
    os.makedirs("/opt/app/mine/deep")
    open("/opt/app/program.pth", "w").write(CODE)
