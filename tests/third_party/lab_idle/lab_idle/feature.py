"""What this package adds to the lab; the entry point in `pyproject.toml` names it."""

from lab.feature import Feature

FEATURE = Feature(
    name="idle",
    engines={"idle": "lab_idle.engine:IdleEngine"},
    verbs={"niceness": ("lab_idle.verb", "change how far behind others nodes of the idle engine are")},
    keys={"niceness": "lab_idle.keys:IdleKeys"},
    findings={
        "kinds": "lab_idle.findings:IdleKind",
        "explain": "lab_idle.findings:find_polite_nodes",
    },
)
