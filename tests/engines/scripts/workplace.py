"""Uses what lies beside it."""

import os

import workplace_helper

from lab import note

note("read beside", open("workplace.txt").read())
note("helper", workplace_helper.WHERE)
assert os.path.samefile(os.getcwd(), os.path.dirname(__file__))
