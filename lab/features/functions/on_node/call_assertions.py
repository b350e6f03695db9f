"""The functions that a rewritten assertion calls when it fails: pytest's own, imported only then."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

SETTINGS: dict[str, Any] = {"assertion_text_diff_style": "ndiff"}
"""Settings of the caller's pytest: `verbosity`, `ci`, and by name the options of its ini file that matter."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from _pytest.assertion import rewrite  # sent by the caller

    util: Any = vars(rewrite)["util"]
    if util._reprcompare is None:
        util._reprcompare, util._config = _compare, _config()
    return getattr(rewrite, name)


def _compare(op: str, left: object, right: object) -> str | None:
    """Explain a comparison, like `_pytest.assertion.pytest_runtest_protocol`."""
    import _pytest.assertion as assertion

    config: Any = _config()
    truncate: Any = assertion.truncate
    for name, module in list(sys.modules.items()):
        if name.startswith("_pytest.") and hasattr(module, "running_on_ci"):
            vars(module)["running_on_ci"] = lambda: bool(SETTINGS.get("ci"))
    lines: Any = assertion.pytest_assertrepr_compare(config, op, left, right)
    if not lines:
        return None
    if hasattr(truncate, "materialize_with_truncation"):
        lines = truncate.materialize_with_truncation(lines, config)
    else:
        lines = truncate.truncate_if_required(list(lines), SimpleNamespace(config=config))
    return "\n~".join(line.replace("\n", "\\n") for line in lines).replace("%", "%%") or None


def _config() -> SimpleNamespace:
    """Return the part of pytest's configuration that the comparison of two values reads."""
    verbose = int(SETTINGS.get("verbosity", 0))

    def getoption(name: str, default: Any = None) -> Any:
        return verbose if name == "verbose" else default

    return SimpleNamespace(
        VERBOSITY_ASSERTIONS="assertions",
        option=SimpleNamespace(verbose=verbose),
        pluginmanager=SimpleNamespace(has_plugin=lambda _: False),
        get_terminal_writer=lambda: SimpleNamespace(_highlight=lambda source, **_: source),
        get_verbosity=lambda _=None: verbose,
        getini=SETTINGS.get,
        getoption=getoption,
        getvalue=getoption,
    )
