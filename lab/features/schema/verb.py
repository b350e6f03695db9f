"""`lab schema`: the JSON Schema of scenarios, by which editors complete and check them."""

from __future__ import annotations

import argparse

from lab.spec.load import schema_file

_HOWTO = """examples:
  lab schema > scenarios/scenario.schema.json     beside your scenarios, each of which begins with the line
                                                  # yaml-language-server: $schema=scenario.schema.json
  lab schema --path                               for the settings of an editor

`lab init` and `lab new` write both. `lab help editor` says more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    parser.add_argument("--path", action="store_true", help="print where the file lies that comes with the lab")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    file = schema_file()
    print(file if arguments.path else file.read_text(encoding="utf-8").rstrip("\n"))
    return 0
