"""Grade: run each submission in place of a scenario's script."""

from lab.feature import Feature

FEATURE = Feature(
    name="grade",
    needs=("html", "pictures", "suite"),
    keys={"grade": "lab.features.grade.keys:GradeKeys"},
    verbs={"grade": ("lab.features.grade.verb", "run and grade submissions, isolated from this machine", "Teaching")},
    exports={
        "OutputError": "lab.features.grade.on_node.read_output:OutputError",
        "read_output": "lab.features.grade.on_node.read_output:read_output",
    },
    on_node="lab.features.grade.on_node",
)
