"""MPI: record process groups written in Python, such as those of torch-mpi; backends that scripts name or need."""

from lab.feature import Feature

FEATURE = Feature(
    name="mpi",
    on_node="lab.features.mpi.on_node",
    keys={"needs": "lab.features.mpi.backends:NeedsKeys"},
    hooks={
        "named_backends": "lab.features.mpi.backends:find_named_backends",
        "lacking": "lab.features.mpi.backends:find_lacking",
        "needed_torch": "lab.features.mpi.backends:find_needed_torch",
    },
    findings={
        "kinds": "lab.features.mpi.backends:BackendKind",
        "explain": "lab.features.mpi.backends:explain_backends",
    },
)
