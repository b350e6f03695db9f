"""What becomes of a verdict when all that the scenario expects is considered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lab.record.result import Expectation, RankResult
from lab.spec.expressions import RankVariables
from lab.spec.scenario import Expect
from lab.verdict.evidence import Evidence
from lab.verdict.expectations import check_expectations
from lab.verdict.facts import RankFacts
from lab.verdict.finding import Judgement


def settle(
    bare: Judgement,
    expect: Expect,
    evidence: Evidence,
    ranks: Sequence[RankResult],
    variables: Mapping[int, RankVariables],
) -> tuple[Judgement, tuple[Expectation, ...]]:
    """The final judgement, and every expectation with whether it was met; of a run that is an error, none."""
    if bare.verdict == "error":
        return bare, ()
    expectations = [*check_expectations(expect, ranks, variables)]
    if expect.calls is not None:
        from lab.verdict.calls import check_calls  # it reads traces: most runs need none of it

        expectations += check_calls(expect, evidence.record, variables)
    if expect.check is not None and evidence.facts.check is not None:
        expectations.append(_check_function(expect.check, evidence.facts.check))
    expectations += _check_whole_run(expect, bare)
    return _final(bare, expect, expectations), tuple(expectations)


def _final(bare: Judgement, expect: Expect, expectations: Sequence[Expectation]) -> Judgement:
    if expect.verdict == "passed" and bare.verdict != "passed":
        return bare
    unmet = [expectation for expectation in expectations if not expectation.met]
    if unmet:
        more = f" (and {len(unmet) - 1} more)" if len(unmet) > 1 else ""
        return replace(bare, verdict="failed", reason=f"{unmet[0].sentence()}{more}")
    if expect.verdict != "passed":
        return replace(bare, verdict="passed", reason=f"{expect.verdict} as expected: {bare.reason}")
    return bare


def _check_function(reference: str, check: RankFacts) -> Expectation:
    met, got = check.code == 0 and not check.error, "it passed"
    if not met:
        ended = f"killed by {check.signal}" if check.signal else f"exit code {check.code}"
        got = next(iter(check.error.strip().splitlines()), ended)
    return Expectation(what=f"check {reference}", rank=None, expected="it passes", got=got, met=met)


def _check_whole_run(expect: Expect, bare: Judgement) -> Iterator[Expectation]:
    if expect.verdict != "passed":
        met = bare.verdict == expect.verdict
        yield Expectation(what="verdict", rank=None, expected=expect.verdict, got=bare.verdict, met=met)
    if expect.culprit is not None:
        got = bare.culprit.rank if bare.culprit else None
        yield Expectation(what="culprit", rank=None, expected=expect.culprit, got=got, met=got == expect.culprit)
    if expect.reason is not None:
        met = re.search(expect.reason, bare.reason) is not None
        yield Expectation(what="reason", rank=None, expected=f"/{expect.reason}/", got=bare.reason, met=met)
