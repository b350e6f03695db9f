"""MPI: record process groups written in Python, such as those of torch-mpi; backends that scripts name or need."""

from lab.feature import Feature

FEATURE = Feature(
    name="mpi",
    on_node=".on_node",
    keys={"needs": ".backends:NeedsKeys"},
    hooks={
        "named_backends": ".backends:find_named_backends",
        "lacking": ".backends:find_lacking",
        "needed_torch": ".backends:find_needed_torch",
    },
    findings={"kinds": ".backends:BackendKind", "explain": ".backends:explain_backends"},
)
