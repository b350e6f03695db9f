"""`lab completion`: print a shell's completion script, and the names that the script requests.

Examples:
  lab completion bash > ~/.local/share/bash-completion/completions/lab
  lab completion zsh > ~/.zfunc/_lab        (with ~/.zfunc in fpath)
  lab completion fish > ~/.config/fish/completions/lab.fish
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping

from lab.cli.call import Parser, load_verb
from lab.cli.overview import list_all_verbs
from lab.engine.ownership import default_name
from lab.errors import UsageError
from lab.feature import hooks, options_of
from lab.features.help.verb import list_topics
from lab.plan.cluster import ClusterInfo
from lab.spec.load import SIGN, list_lessons


def _runs() -> Iterable[str]:
    from lab.record.read import list_records

    return [record.run for record in list_records()]


def _clusters() -> list[ClusterInfo]:
    from lab.engine.select import available_engines

    return [info for engine in available_engines()[0] for info in engine.find()]


def _nodes() -> Iterable[str]:
    clusters = _clusters()
    own = [info for info in clusters if info.name == default_name()]  # the default cluster
    return {node.name for info in own or clusters for node in info.nodes}


NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "lessons": list_lessons,
    "scenarios": lambda: [f"{SIGN}{name}" for name in list_lessons()],
    "runs": _runs,
    "clusters": lambda: [info.name for info in _clusters()],
    "nodes": _nodes,
    "topics": lambda: {*list_topics(), *list_all_verbs()},
    "faults": lambda: [name for names in hooks("fault_names") for name in names()],
}
"""Kind of names -> the current names."""


SHELLS = ("bash", "zsh", "tcsh", "fish")
_ASK = "lab completion --names {} 2>/dev/null"
_FILES = {"bash": 'compgen -f -- "$1"; ', "zsh": "_files; "}
"""Kinds whose values can also be files."""
_FUNCTIONS = {
    "bash": '{name}() {{ {files}compgen -W "$({ask})" -- "$1"; }}',
    "zsh": '{name}() {{ {files}compadd -- ${{(f)"$({ask})"}} }}',
}
_AT_IS_PART_OF_A_WORD = "COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}"
"""Otherwise bash would complete a name after the @ of a lesson as the name of a machine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, nargs="?", help="your shell")
    parser.add_argument("--names", choices=list(NAMES), help="print names for a completion script")


def run(arguments: argparse.Namespace) -> int:
    """Print the script, or names."""
    if arguments.names:
        names = filter(re.compile(r"[A-Za-z0-9_.@+-]+").fullmatch, NAMES[arguments.names]())
        print("\n".join(sorted(names)))  # none with characters that a shell interprets
        return 0
    if not arguments.shell:
        raise UsageError("lab completion needs a shell", f"name one of {', '.join(SHELLS)}")
    import shtab

    if arguments.shell not in shtab.SUPPORTED_SHELLS:
        problem = f"the installed package shtab does not support {arguments.shell}"
        raise UsageError(problem, "install a newer version of shtab")
    preamble = {shell: "\n".join(_write_function(shell, kind) for kind in NAMES) for shell in _FUNCTIONS}
    preamble["bash"] = f"{_AT_IS_PART_OF_A_WORD}\n{preamble['bash']}"
    print(shtab.complete(whole_parser(), shell=arguments.shell, preamble=preamble))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with every verb and option, and the shell code that completes their values."""
    parser = Parser(prog="lab")
    verbs = parser.add_subparsers(dest="verb")
    for verb, text in list_all_verbs().items():
        one = verbs.add_parser(verb, help=text)
        for module in (load_verb(verb), *options_of(verb)):
            module.add_arguments(one)
        one.ask_for_names(_how_to_ask)
    return parser


def _write_function(shell: str, kind: str) -> str:
    files = _FILES[shell] if kind == "scenarios" else ""
    return _FUNCTIONS[shell].format(name=_function(kind), files=files, ask=_ASK.format(kind))


def _function(kind: str) -> str:
    return "_lab_scenarios_or_files" if kind == "scenarios" else f"_lab_{kind}"  # shtab completes / after _files


def _how_to_ask(kind: str) -> dict[str, str]:
    """The code of each shell that completes names of a kind."""
    ask, files = _ASK.format(kind), kind == "scenarios"
    return {
        "bash": _function(kind),
        "zsh": _function(kind),
        "fish": f"({ask}; __fish_complete_path (commandline -ct))" if files else f"({ask})",
        "tcsh": "f" if files else f"`lab completion --names {kind}`",
    }
