"""Ends with 0 on all ranks and has done nothing. That ends well, and earns nothing."""

import os

os._exit(0)
