"""Stops itself and whom it can, so that nobody hears an answer any more. Its time runs out, and it is killed."""

import os
import signal

os.killpg(0, signal.SIGSTOP)
