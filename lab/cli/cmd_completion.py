"""`lab completion`: a completion script for a shell."""

from __future__ import annotations

import argparse

from lab.cli.call import Parser, load_verb
from lab.cli.overview import VERBS

SHELLS = ("bash", "zsh", "tcsh", "fish")
_HOWTO = """examples:
  lab completion bash > ~/.local/share/bash-completion/completions/lab
  lab completion zsh > ~/.zfunc/_lab        (with ~/.zfunc in fpath)
  lab completion fish > ~/.config/fish/completions/lab.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    parser.add_argument("shell", choices=_supported(), help="your shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    print(shtab.complete(whole_parser(), shell=arguments.shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """One parser that knows every verb with all its options."""
    parser = Parser(prog="lab")
    verbs = parser.add_subparsers(dest="verb")
    for verb, text in VERBS.items():
        load_verb(verb).add_arguments(verbs.add_parser(verb, help=text))
    return parser


def _supported() -> list[str]:
    import shtab

    return [shell for shell in SHELLS if shell in shtab.SUPPORTED_SHELLS]
