"""Grade: run each submission in place of a scenario's script."""

from lab.feature import Feature

FEATURE = Feature(
    name="grade",
    needs=("html", "pictures", "suite"),
    keys={"grade": ".keys:GradeKeys"},
    verbs={"grade": (".verb", "run and grade submissions, isolated from this machine", "Teaching")},
    exports={"OutputError": ".on_node.read_output:OutputError", "read_output": ".on_node.read_output:read_output"},
    on_node=".on_node",
)
