"""The public `Result`, which shows itself in a notebook."""

from __future__ import annotations

from lab.record.result import Result

__all__ = ["Result"]


def _html(result: Result) -> str:
    from lab.report.notebook import result_html

    return result_html(result)


Result.view = _html
