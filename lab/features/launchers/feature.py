"""Launchers: torchrun and mpirun in the place of the lab's own agents."""

from lab.feature import Feature

FEATURE = Feature(
    name="launchers",
    launchers={
        "torchrun": "lab.features.launchers.torchrun:TorchrunLauncher",
        "mpirun": "lab.features.launchers.mpirun:MpirunLauncher",
    },
)
