"""List all messages of the lab, each with an example that the tests produce; `dev/messages --help` says more.

To get examples, the tests run with an import hook that rewrites the modules of the lab.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import marshal
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from message_templates import KINDS, RECORDER, ROOT, Rewriter, Template, list_errors, list_templates, one_line

FILE = ROOT / "docs" / "messages.txt"
ENVIRONMENT = "LAB_MESSAGES"
"""Names the folder where processes write the values of templates."""
MOST_EXAMPLES, LONGEST = 200, 300
UNUSUAL = re.compile(r"x{8}|[<>]|''|\(\)|  |\bno rank\b|^$")
"""Values that only tests use; another example is better."""


def record_message(key: str, value: object) -> object:
    """Write the value of a template to a file, once per process, and return it."""
    texts = RECORDED.setdefault(key, set())
    text = normalize(". ".join(filter(None, value)) if isinstance(value, tuple) else str(value))
    if len(texts) < MOST_EXAMPLES and text not in texts:
        texts.add(text)
        with suppress(OSError):  # the tests are over, or a test has used up the open files
            file = os.open(f"{os.environ[ENVIRONMENT]}/texts", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.write(file, f"{json.dumps([key, text])}\n".encode())
            os.close(file)
    return value


RECORDED: dict[str, set[str]] = {}
NUMBERS = re.compile(r"\d[\d.,]*(?: (?:µs|ms|s|[kMG]?B)\b)?|\b[0-9a-f]{6,10}\b")
VARYING = {
    r"(?:/tmp|/dev/shm|/var/tmp)(?:/[^\s/'\",:;)`]+)*/": "/tmp/",
    re.escape(sys.executable): "/usr/bin/python3",
    re.escape(f"{ROOT}/"): "",
    r"0x[0-9a-f]{6,}": "0x7f00",
    r"\b20\d{6}-\d{6}": "20260102-030405",
    r"\blab-(error|test|messages)-\w+": r"lab-\1-x",
    r"\bprocess \d{3,}": "process 1234",
    r"\b\d{5,}h \d\dm": "12h",
}
"""What differs between runs of the tests, and what examples have instead."""


def normalize(text: str) -> str:
    """Return a text as one line, without what differs between runs of the tests."""
    for pattern, stable in VARYING.items():
        text = re.sub(pattern, stable, text)
    text = one_line(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class Loader(SourceFileLoader):
    """Load a module of the lab with its templates rewritten; keep its code for other processes."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module."""
        kept = Path(os.environ[ENVIRONMENT], fullname)
        if kept.exists():
            code: CodeType = marshal.loads(kept.read_bytes())
            return code
        errors = frozenset(Path(os.environ[ENVIRONMENT], "errors").read_text(encoding="utf-8").split())
        tree = ast.parse(Path(self.path).read_bytes())
        rewritten = Rewriter(Path(self.path).relative_to(ROOT / "lab").as_posix(), errors).visit(tree)
        code = compile(rewritten, self.path, "exec")
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(marshal.dumps(code))
        os.replace(file.name, kept)
        return code


class Finder:
    """Find the modules of the lab."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec with the loader above."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname.partition(".")[0] == "lab" else None
        if spec is None or spec.origin is None or not re.match(rf"{re.escape(str(ROOT))}/lab/.*\.py$", spec.origin):
            return None
        spec.loader = Loader(fullname, spec.origin)
        return spec


def install_hook() -> None:
    """Record the messages of this process; a `sitecustomize` calls it."""
    if ENVIRONMENT in os.environ:
        vars(builtins)[RECORDER] = record_message
        sys.meta_path.insert(0, Finder)


def run_tests(words: list[str]) -> dict[Template, set[str]]:
    """Run pytest with these words, and return the examples of each template."""
    with tempfile.TemporaryDirectory(prefix="lab-messages-") as folder:
        trees = [ast.parse(path.read_bytes()) for path in (ROOT / "lab").rglob("*.py")]
        Path(folder, "errors").write_text("\n".join(list_errors(trees)), encoding="utf-8")
        hook = (
            f"import sys\nsys.path.append({str(ROOT / 'dev')!r})\nimport list_messages\nlist_messages.install_hook()\n"
        )
        Path(folder, "texts").touch()
        Path(folder, "sitecustomize.py").write_text(hook, encoding="utf-8")
        paths = os.pathsep.join(filter(None, (folder, str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, ENVIRONMENT: folder, "PYTHONPATH": paths}
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--hypothesis-seed=0", *words],
            cwd=ROOT,
            env=environment,
            stdout=sys.stderr,
            check=False,
        )
        examples: dict[Template, set[str]] = {}
        for line in Path(folder, "texts").read_text(encoding="utf-8").splitlines():
            key, text = json.loads(line)
            examples.setdefault(Template(*key.split("\t")), set()).add(text)
    return examples


def read_examples(text: str) -> dict[Template, str]:
    """Return the templates of the file with their examples; empty where no test shows one."""
    examples, kind, module, function, template = dict[Template, str](), "", "", "", None
    kinds = {title: kind for kind, title in KINDS.items()}
    for line in text.splitlines():
        if line.startswith("== "):
            kind = kinds.get(line[3:], "")
        elif kind and line and not line.startswith(" "):
            module, _, function = line.partition(" ")
        elif line.startswith("    ") and template:
            examples[template] = line[6:] if line[4] == ">" else ""
        elif line.startswith("  "):
            template = Template(kind, module, function, line[2:])
            examples[template] = line[2:].removeprefix("hint: ")
    return examples


def choose_examples(examples: dict[Template, set[str]], before: dict[Template, str]) -> dict[Template, str]:
    """Choose an example for each template: an old one that tests still produce, but for numbers, or the first."""
    chosen = {}
    for template, old in before.items():
        texts = sorted(
            filter(None, examples.get(template, ())),
            key=lambda text: (len(text) >= LONGEST, bool(UNUSUAL.search(text)), text),
        )
        is_current = NUMBERS.sub("", old) in {NUMBERS.sub("", text) for text in texts}
        chosen[template] = old if is_current or not texts else texts[0]
    return chosen


def render_file(examples: dict[Template, str]) -> str:
    """Return the file."""
    lines, where = [HEAD], ("", "", "")
    for template, example in examples.items():
        if template.kind != where[0]:
            lines += ["", f"== {KINDS[template.kind]}"]
        if template[:3] != where:
            lines += ["", f"{template.module} {template.function}"]
        where = template[:3]
        lines.append(f"  {template.text}")
        if template.kind != "page" and example != template.text.removeprefix("hint: "):
            lines.append(f"    > {example}" if example else "    (no test shows this)")
    counted = [bool(example) for template, example in examples.items() if template.kind != "page"]
    share = f"Tests show {sum(counted):,} of {len(counted):,} messages ({sum(counted) / max(1, len(counted)):.0%})."
    return "\n".join([*lines, "", share, ""])


HEAD = """\
Messages of the lab: what commands, errors, verdicts, and pages can say. `dev/messages --write` renews this file.

Below each module and function are its texts: {name} is a value, [a | b] is one of several texts. A line with > is an
example from the tests. Texts without values have none. Constants count as shown if a test imports the module."""


def main() -> None:
    """Print or write the messages."""
    parser = argparse.ArgumentParser(prog="dev/messages", description="Print all messages of the lab with examples.")
    parser.add_argument("--static", action="store_true", help="run no tests; keep the examples in docs/messages.txt")
    parser.add_argument("--write", action="store_true", help="write docs/messages.txt")
    parser.add_argument(
        "pytest", nargs="*", default=["-m", "unit", "-n", "auto"], help="options (default: -m unit -n auto)"
    )
    arguments = parser.parse_args()
    before = read_examples(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    examples = {} if arguments.static else run_tests(arguments.pytest)
    text = render_file(choose_examples(examples, {one: before.get(one, "") for one in list_templates()}))
    if arguments.write:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
