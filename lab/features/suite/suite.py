"""Runs the cases of a suite on warm clusters side by side: the parent of the workers, which runs nothing itself."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from lab.engine.interrupts import taking
from lab.engine.protocol import Engine
from lab.errors import ClusterUnfit, Interrupted, LabError
from lab.features.suite.hands import LAST_PATIENCE_S, Hand, Hands
from lab.features.suite.messages import Begun, Ended, Made, Making, Refused, Task, Told, Word
from lab.features.suite.outcome import Attempt, Case, Outcome, SuiteResult
from lab.features.suite.schedule import Jobs, Pace, cluster_for, in_order, next_fitting
from lab.features.suite.watcher import Nobody, Watcher
from lab.record.read import Turn
from lab.record.result import Result
from lab.run.options import RunOptions, suite_name
from lab.run.place import Place, reap

_LOOK_S = 0.1
_ENDED_BY_ITSELF = "the process that ran it ended ({})"


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a suite is run."""

    jobs: Jobs
    retries: int = 0
    """How often a case that failed is tried again."""
    most_failures: int | None = None
    """Nothing begins any more after so many cases have failed; None: all run."""
    shuffle: bool = False
    """Whether the order is by chance."""
    seed: int | None = None
    """Of that order."""
    known_s: Mapping[str, float] = field(default_factory=dict)
    """What scenarios took earlier, by the name of each."""


def run_cases(
    cases: Sequence[Case],
    conduct: Conduct,
    *,
    engine: Engine,
    name: str,
    asked: Mapping[str, Any],
    options: RunOptions,
    stays: bool = False,
    watcher: Watcher | None = None,
) -> SuiteResult:
    """Run cases; Ctrl-C ends it with what was found so far.

    Args:
        cases: what is run; those that cannot be are skipped.
        conduct: how many at once, how often, in which order.
        engine: where clusters are made.
        name: the cluster that is there, where it is used; else what names of clusters begin with.
        asked: fields of a cluster's shape that were asked for.
        options: how each case is run.
        stays: whether to run on the cluster of that name, which is there; then one after the other.
        watcher: told what happens.

    Raises:
        LabError: no worker could begin; of what happens later, outcomes tell.
    """
    suite = suite_name()
    places = [
        Place(engine=engine, name=one, asked=asked, announce=lambda _: None)
        for one in ([name] if stays else [f"{name[:32]}-{suite[-4:]}-{n}" for n in range(1, conduct.jobs.most + 1)])
    ]
    watcher = watcher or Nobody()
    with Hands(places, suite, stays=stays) as hands:
        found = _Suite(suite, cases, conduct, options, hands, watcher).run()
    if any(hand.process.exitcode for hand in hands.all):  # one was killed, and could not remove its cluster
        with suppress(LabError):
            reap(engine, lambda text: watcher.told(0, text))
    return found


class _Suite:
    def __init__(
        self,
        suite: str,
        cases: Sequence[Case],
        conduct: Conduct,
        options: RunOptions,
        hands: Hands,
        watcher: Watcher,
    ) -> None:
        self.suite = suite
        self.cases = list(cases)
        self.conduct = conduct
        self.options = options
        self.hands = hands
        self.watcher = watcher
        shuffle = conduct.seed if conduct.shuffle else None
        self.queue = in_order(cases, jobs=len(hands.all), shuffle=shuffle, known_s=conduct.known_s)
        self.planned = len(cases)
        self.runs = len(self.queue)
        """How many cases can run, whatever becomes of them."""
        self.attempts: dict[int, list[Attempt]] = {number: [] for number in self.queue}
        self.outcomes = {n: Outcome(case=case) for n, case in enumerate(cases) if case.skipped}
        self.pace = Pace(conduct.known_s)
        self.failures = 0
        self.used: set[int] = set()
        """The numbers of workers that had something to do."""
        self.stopped = ""
        self.stop_code = 0
        self.interrupted = False
        self.deadline = math.inf
        """The monotonic time until which workers are listened to."""

    def run(self) -> SuiteResult:
        began = time.monotonic()
        self.watcher.begins(self.conduct.jobs.why, self.planned, len(self.hands.all))
        for outcome in list(self.outcomes.values()):
            self.watcher.ended(outcome, len(self.outcomes))
        with taking(self._note_interrupt, callable):
            self._go_on()
        for number, attempts in self.attempts.items():
            if attempts and number not in self.outcomes:  # it was to be tried again
                self._settle(number)
        return SuiteResult(
            suite=self.suite,
            outcomes=tuple(self.outcomes[number] for number in sorted(self.outcomes)),
            planned=self.planned,
            clusters=len(self.used),
            duration_s=time.monotonic() - began,
            seed=self.conduct.seed,
            stopped=self.stopped if len(self.outcomes) < self.planned else "",
            stop_code=self.stop_code,
        )

    def _go_on(self) -> None:
        """Give out cases, and listen, until all have ended."""
        self._give_out()
        while any(not hand.connection.closed for hand in self.hands.all) and time.monotonic() < self.deadline:
            if self.interrupted and self.deadline == math.inf:
                self._interrupt()
            for hand, word in self.hands.heard(_LOOK_S):
                self._hear(hand, word)
            self._give_out()
            self.watcher.tick()
        if self.queue:
            self._stop("every process that ran cases has ended", LabError.exit_code)

    def _note_interrupt(self, *_: object) -> None:
        """Ctrl-C: what is being heard is heard first, so that no outcome is lost."""
        self.interrupted = True

    def _interrupt(self) -> None:
        self.watcher.told(0, "interrupted; removing what was made, which takes a moment")
        self._stop("interrupted", Interrupted.exit_code)
        self.hands.interrupt()
        self.deadline = time.monotonic() + LAST_PATIENCE_S

    # -- what is next

    def _give_out(self) -> None:
        for hand in self.hands.all:
            if hand.over or hand.case is not None:
                continue
            number = self._next_for(hand)
            if number is not None:
                self._give(hand, number)
            elif hand.cluster is not None or not self._working():
                hand.dismiss()

    def _working(self) -> list[Hand]:
        return [hand for hand in self.hands.all if hand.case is not None]

    def _next_for(self, hand: Hand) -> int | None:
        """The number of the case that this idle worker should run; None where it has nothing to do now."""
        if hand.cluster is not None:
            number = next_fitting(self.queue, self.cases, hand.cluster)
            if number is not None:
                return number
        now = time.monotonic()
        for ground, numbers in self._by_ground():
            served = [one for one in self._working() if self._serves(one, ground)]
            running_s = [now - one.since for one in self._working() if one.since]
            if self.pace.pays([self.cases[number] for number in numbers], running_s, len(served)):
                return numbers[0]
        return None

    def _serves(self, hand: Hand, ground: str) -> bool:
        return hand.case is not None and self.cases[hand.case].ground == ground

    def _by_ground(self) -> Iterator[tuple[str, list[int]]]:
        grounds: dict[str, list[int]] = {}
        for number in self.queue:
            grounds.setdefault(self.cases[number].ground, []).append(number)
        yield from grounds.items()

    def _give(self, hand: Hand, number: int) -> None:
        case = self.cases[number]
        self.queue.remove(number)
        self.used.add(hand.number)
        fits = hand.cluster is not None and case.fits(hand.cluster)
        shape = hand.cluster if fits and hand.cluster else cluster_for(self.queue, self.cases, number)
        attempt = len(self.attempts[number]) + 1
        turn = Turn(suite=self.suite, number=number + 1, of=self.runs, case=case.id, attempt=attempt)
        options = replace(
            self.options, turn=turn, nodes=case.nodes, nproc_per_node=case.nproc_per_node, backend=case.backend
        )
        hand.give(Task(case.scenario, options, shape), number)

    # -- what is heard

    def _hear(self, hand: Hand, word: Word | None) -> None:
        if isinstance(word, Told):
            self.watcher.told(hand.number, word.text)
        elif isinstance(word, Making):
            self.watcher.working(hand.number, "makes its cluster", None)
        elif isinstance(word, Made):
            self.pace.made(word.took_s)
        elif isinstance(word, Begun) and hand.case is not None:
            hand.since = time.monotonic()
            self.watcher.working(hand.number, "runs", self.cases[hand.case])
        elif isinstance(word, Ended) and hand.case is not None:
            self._end(hand, word)
        elif isinstance(word, Refused):
            self._refused(hand, word)
        elif word is None:
            self._gone(hand)

    def _end(self, hand: Hand, ended: Ended) -> None:
        number, hand.case = hand.case, None
        assert number is not None
        self.watcher.working(hand.number, "", None)
        result = ended.attempt.result
        if result.exit_code == Interrupted.exit_code:
            self._stop("interrupted", Interrupted.exit_code)
            return
        if ended.no_cluster:
            hand.cluster = None
        elif not ended.lacking:
            self.pace.took(ended.attempt.took_s)
        if ended.lacking:
            self.cases[number] = replace(self.cases[number], skipped=result.reason)
            self._settle(number)
            return
        self._attempted(number, ended.attempt, final=ended.no_cluster or ended.last)
        if ended.last:
            hand.over = True
            self._stop(result.reason, result.exit_code)
        elif ended.no_cluster:  # nor would there be one for the others that could share it
            for other in [one for one in self.queue if self.cases[one].ground == self.cases[number].ground]:
                self.queue.remove(other)
                self._attempted(other, replace(ended.attempt, took_s=0.0), final=True)

    def _attempted(self, number: int, attempt: Attempt, *, final: bool) -> None:
        case, attempts = self.cases[number], self.attempts[number]
        attempts.append(attempt)
        if not attempt.result.passed and not final and len(attempts) <= self.conduct.retries and not self.stopped:
            self.watcher.again(case, len(attempts), self.conduct.retries + 1, attempt)
            self.queue.insert(0, number)
            return
        self._settle(number)
        self.failures += not attempt.result.passed
        if self.conduct.most_failures is not None and self.failures >= self.conduct.most_failures:
            self._stop("that many have failed" if self.failures > 1 else "one has failed", 0)

    def _settle(self, number: int) -> None:
        outcome = self.outcomes[number] = Outcome(case=self.cases[number], attempts=tuple(self.attempts[number]))
        self.watcher.ended(outcome, len(self.outcomes))

    def _refused(self, hand: Hand, word: Refused) -> None:
        """A worker cannot work: neither can the others."""
        if not any(outcome.attempts for outcome in self.outcomes.values()):
            kind = ClusterUnfit if word.exit_code == ClusterUnfit.exit_code else LabError
            raise kind(word.message, word.hint)
        self._stop(word.message, word.exit_code)

    def _gone(self, hand: Hand) -> None:
        """A worker has ended; what it ran, if it did, was broken off."""
        hand.process.join(1.0)
        number, hand.case, hand.cluster = hand.case, None, None
        if number is None or self.stop_code:
            return
        how = _ENDED_BY_ITSELF.format(f"exit code {hand.process.exitcode}")
        lost = Result(verdict="error", reason=how, scenario=self.cases[number].scenario.name, exit_code=1)
        self._attempted(number, Attempt(result=lost, hint="the next `lab` command removes what it left"), final=True)

    def _stop(self, why: str, code: int) -> None:
        """Nothing begins any more."""
        self.queue.clear()
        self.stopped = self.stopped or why
        self.stop_code = max(self.stop_code, code)
