"""Launchers: torchrun and mpirun in the place of the lab's own agents."""

from lab.feature import Feature

FEATURE = Feature(
    name="launchers",
    launchers={
        "torchrun": "lab.features.launchers.torchrun:TorchrunLauncher",
        "mpirun": "lab.features.launchers.mpirun:MpirunLauncher",
    },
    hooks={"with_attempts": "lab.features.launchers.attempts:with_attempts"},
    findings={
        "kinds": "lab.features.launchers.attempts:AttemptKind",
        "words": "lab.features.launchers.attempts:WORDS",
        "explain": "lab.features.launchers.attempts:explain_attempts",
    },
)
