"""Where packages are on nodes."""

ENVIRONMENT = "/opt/lab-packages"
"""The virtual environment of a container. Only workers use it: the agent runs with the Python of the image."""


def package_folders(environment: str) -> str:
    """The folder of packages of an environment, as a pattern: `*` stands for the version of its Python."""
    return f"{environment}/lib/python*/site-packages"
