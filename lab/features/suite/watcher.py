"""What whoever watches a suite is told."""

from __future__ import annotations

from typing import Protocol

from lab.features.suite.outcome import Attempt, Case, Outcome


class Watcher(Protocol):
    """Watches a suite; every method returns quickly."""

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """So many cases are about to run, on so many clusters at most."""

    def told(self, worker: int, text: str) -> None:
        """Something is being done that takes a moment."""

    def working(self, worker: int, doing: str, case: Case | None) -> None:
        """What a worker does from now on, in a word or two; with its case, if it runs one."""

    def again(self, case: Case, attempt: int, attempts: int, failed: Attempt) -> None:
        """A case that has failed is tried again."""

    def ended(self, outcome: Outcome, done: int) -> None:
        """A case has ended; so many have."""

    def tick(self) -> None:
        """The suite goes on; called some times a second."""


class Nobody:
    """Watches nothing."""

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """Nothing."""

    def told(self, worker: int, text: str) -> None:
        """Nothing."""

    def working(self, worker: int, doing: str, case: Case | None) -> None:
        """Nothing."""

    def again(self, case: Case, attempt: int, attempts: int, failed: Attempt) -> None:
        """Nothing."""

    def ended(self, outcome: Outcome, done: int) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""
