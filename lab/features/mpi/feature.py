"""MPI: recording process groups that are written in Python, as those of torch-mpi; scripts that name other backends."""

from lab.feature import Feature

FEATURE = Feature(
    name="mpi",
    on_node="lab.features.mpi.on_node",
    hooks={"named_backends": "lab.features.mpi.findings:find_named_backends"},
    findings={
        "kinds": "lab.features.mpi.findings:BackendKind",
        "words": "lab.features.mpi.findings:WORDS",
        "explain": "lab.features.mpi.findings:explain_backends",
    },
)
