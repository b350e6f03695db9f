"""MPI: record process groups written in Python, such as those of torch-mpi; backends that scripts name or need."""

from lab.feature import Feature

FEATURE = Feature(
    name="mpi",
    on_node="lab.features.mpi.on_node",
    keys={"needs": "lab.features.mpi.needs:NeedsKeys"},
    hooks={
        "named_backends": "lab.features.mpi.findings:find_named_backends",
        "lacking": "lab.features.mpi.needs:find_lacking",
        "needed_torch": "lab.features.mpi.needs:find_needed_torch",
    },
    findings={
        "kinds": "lab.features.mpi.findings:BackendKind",
        "explain": "lab.features.mpi.findings:explain_backends",
    },
)
