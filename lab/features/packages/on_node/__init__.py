"""What nodes run of it: workers that use a virtual environment."""

HOOKS = {"environment": "environment:enter_environment"}
