"""Launchers: torchrun and mpirun instead of the lab's own agents."""

from lab.feature import Feature

FEATURE = Feature(
    name="launchers",
    launchers={
        "torchrun": "lab.features.launchers.launchers:TorchrunLauncher",
        "mpirun": "lab.features.launchers.launchers:MpirunLauncher",
    },
    hooks={
        "with_attempts": "lab.features.launchers.findings:with_attempts",
        "judge_starters": "lab.features.launchers.findings:judge_starters",
    },
    findings={
        "kinds": "lab.features.launchers.findings:LauncherKind",
        "explain": "lab.features.launchers.findings:explain_attempts",
    },
)
