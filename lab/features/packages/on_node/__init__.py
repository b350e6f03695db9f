"""Node code of packages: workers use a virtual environment."""

HOOKS = {"environment": "environment:enter_environment"}
