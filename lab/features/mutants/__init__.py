"""Mutants: change one thing that a rank does, without a change of its script, with the truth known."""

from lab.feature import Feature

FEATURE = Feature(
    name="mutants",
    needs=("faults", "html", "suite", "recording", "training"),
    verbs={"mutate": (".mutate", "find out which mistakes your checks notice", "Runs")},
    keys={"mutant": ".option:MutantKeys", "expect.mutants": ".option:ExpectKeys"},
    hooks={"expect.mutants": ".mutate:judge_mutants"},
    options={"run": ".option:OPTION"},
    parts=(".option:plan_mutant",),
    on_node=".on_node",
)
