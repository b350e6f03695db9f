"""Expectations that speak of the whole run: its verdict, its culprit, its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.record.result import Expectation
from lab.spec.scenario import Expect
from lab.verdict.judgement import Judgement


def check_whole_run(expect: Expect, bare: Judgement) -> Iterator[Expectation]:
    """Compare a bare judgement with what a scenario expects of the whole run."""
    if expect.verdict != "passed":
        met = bare.verdict == expect.verdict
        yield Expectation(what="verdict", rank=None, expected=expect.verdict, got=bare.verdict, met=met)
    if expect.culprit is not None:
        got = bare.culprit.rank if bare.culprit else None
        yield Expectation(what="culprit", rank=None, expected=expect.culprit, got=got, met=got == expect.culprit)
    if expect.reason is not None:
        met = re.search(expect.reason, bare.reason) is not None
        yield Expectation(what="reason", rank=None, expected=f"/{expect.reason}/", got=bare.reason, met=met)
