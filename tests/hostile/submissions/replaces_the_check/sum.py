"""Brings a check, a module that the check imports, one of Python's, and numbers, all of which find it right."""

import json

from lab import note

note("total", json.load(None)["sum"])
