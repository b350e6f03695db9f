"""List all messages of the lab, each with an example that the tests produce; `dev/messages --help` says more.

A template is a text in the source, with `{name}` for each value and `[a | b]` for alternatives. To get examples, the
tests run with an import hook that rewrites the modules of the lab: each template also records its value.
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
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "messages.txt"
ENVIRONMENT = "LAB_MESSAGES"
"""Names the folder where processes write the values of templates."""
KINDS = {
    "error": "Errors, and their hints",
    "finding": "Verdicts and findings",
    "progress": "Progress",
    "output": "Output",
    "help": "Help of verbs and options",
    "text": "Texts and parts of sentences",
    "page": "Pages and C++ (without examples)",
}
CALLS = {
    **dict.fromkeys(("announce", "line", "status", "show", "report_progress"), "progress"),
    **dict.fromkeys(("print", "write", "writelines", "print_sanitized", "print_answer"), "output"),
    **dict.fromkeys(("error", "fail", "skip", "exit"), "error"),
    **dict.fromkeys(("compile", "search", "match", "fullmatch", "sub", "finditer", "findall", "key_field"), ""),
}
"""Kind of the arguments of functions, by name; empty: they are no messages."""
KEYWORDS = {
    **dict.fromkeys(("help", "description", "epilog", "usage", "verbs", "HELP", "VERBS"), "help"),
    "hint": "hint",
}
"""Kind of keyword arguments, and of variables and attributes, by name."""
NO_MESSAGES = ("metavar", "example", "metadata", "complete")
WORDS = re.compile(r"\b[A-Za-z]{2,}\b[^{}]* [a-z]{2,}\b")
CODE = re.compile(r"[\w.]*$|<\w+ \w+=|[\w., ()]*\b(?:def|import) [\w, ]+[(;\n]|[^ ]*\|[A-Z]")
PAGE_TEXT = re.compile(
    r"""(?:(?:title|aria-label|placeholder)=|(?<![=\w-]))"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`|>([^<>{}`";=]+)<"""
)
PAGE_WORDS = re.compile(r"^[A-Z✔✘].* [a-z]{2,}|\b[a-z]{2,}\b[^{}]* [a-z]{2,}[^{}]* [a-z]{2,}\b")
MOST_EXAMPLES, LONGEST = 200, 300


class Template(NamedTuple):
    """A message in the source."""

    kind: str
    module: str
    function: str
    text: str


def render_template(node: ast.AST) -> str:
    """Return the text of an expression; empty if it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(render_template, values))
        case ast.FormattedValue(value=value):
            return render_template(value) or "{" + shorten(ast.unparse(value)) + "}"
        case ast.IfExp(body=body, orelse=orelse) if render_template(body) or render_template(orelse):
            return f"[{' | '.join(filter(None, map(render_template, (body, orelse))))}]"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [render_template(part) for part in (left, right)]
            if any(parts):
                return "".join(
                    part or render_template(ast.FormattedValue(at, -1))
                    for part, at in zip(parts, (left, right), strict=True)
                )
    return ""


def shorten(code: str) -> str:
    """Shorten the code of a value in a template."""
    code = code.removeprefix("self.")
    return code if len(code) <= 50 else re.split(r"[ (\[]", code)[0] + "(…)"


class Rewriter(ast.NodeTransformer):
    """Collect the templates of a module, and make each record its value."""

    def __init__(self, module: str, errors: frozenset[str]) -> None:
        self.templates: list[Template] = []
        self._module = module
        self._errors = errors
        self._scope: list[str] = []
        self._kind: str | None = "finding" if re.search(r"^diagnosis/|/findings|/wording", module) else "text"
        self._is_direct = False
        self._variables: dict[str, str] = {}

    def _visit_as(self, kind: str | None, node: Any, *, is_direct: bool = False) -> Any:
        before = self._kind, self._is_direct
        self._kind, self._is_direct = kind, is_direct
        visited = self.generic_visit(node) if kind is None or isinstance(node, ast.Raise) else self.visit(node)
        self._kind, self._is_direct = before
        return visited

    def visit(self, node: ast.AST) -> Any:
        """Visit a node in the kind of its context."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return node  # a docstring
        if isinstance(node, ast.Compare | ast.pattern | ast.Subscript):
            return self._visit_as(None, node)
        text = render_template(node) if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) else ""
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and not render_template(part.value):
                    part.value = self.visit(part.value)
        elif not text:
            return super().visit(node)
        return self._record(node, text)

    def _record(self, node: ast.AST, text: str) -> ast.AST:
        is_message = WORDS.search(text) or (self._is_direct and re.search("^[a-z]+\n?$|[a-z]{3}.* | .*[a-z]{3}", text))
        if self._kind is None or not is_message or CODE.match(text):
            return node
        text = f"hint: {text}" if self._kind == "hint" else text
        kind = "error" if self._kind == "hint" else self._kind
        template = Template(kind, self._module, ".".join(self._scope) or "-", text.strip().replace("\n", "\\n"))
        self.templates.append(template)
        return record_call(template, node)

    def _visit_scope(self, node: Any) -> Any:
        variables, self._variables = self._variables, {**self._variables, **self._list_variables(node)}
        self._scope.append(node.name)
        node.body = [self.visit(child) for child in node.body]
        if not isinstance(node, ast.ClassDef):
            node.args.defaults = [self.visit(child) for child in node.args.defaults]
        self._scope.pop()
        self._variables = variables
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_scope  # noqa: N815

    def _list_variables(self, function: ast.AST) -> dict[str, str]:
        """Return the variables that become messages, with their kinds."""
        calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
        parts = (pair for call in calls for pair in self._parts(call))
        return {
            name.id: kind
            for part, kind in parts
            if kind in ("error", "hint", "progress", "help")
            for name in ast.walk(part)
            if isinstance(name, ast.Name)
        }

    def _parts(self, call: ast.Call) -> Iterator[tuple[ast.AST, str | None]]:
        """Yield the arguments of a call, each with its kind."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        kind = "error" if name in self._errors or name.endswith("Error") else CALLS.get(name, self._kind) or None
        for at, argument in enumerate(call.args):
            yield argument, "hint" if name in self._errors and at == 1 else kind
        for keyword in call.keywords:
            yield keyword.value, None if keyword.arg in NO_MESSAGES else KEYWORDS.get(keyword.arg or "", kind)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Visit a call."""
        node.func = self.visit(node.func)
        inherited = self._kind
        visited = [self._visit_as(kind, part, is_direct=kind != inherited) for part, kind in [*self._parts(node)]]
        node.args = visited[: len(node.args)]
        for keyword, value in zip(node.keywords, visited[len(node.args) :], strict=True):
            keyword.value = value
        return node

    def visit_Raise(self, node: ast.Raise) -> Any:
        """Visit a raise."""
        return self._visit_as("error", node, is_direct=True)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Visit an assignment, whose variable can become a message."""
        target = node.targets[0]
        names = [target.attr] if isinstance(target, ast.Attribute) else [
            name.id for name in ast.walk(target) if isinstance(name, ast.Name)
        ]  # fmt: skip
        known = {**self._variables, **KEYWORDS}
        kind = next((known[name] for name in names if name in known), self._kind)
        node.value = self._visit_as(kind, node.value, is_direct=kind in ("help", "hint"))
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Leave an annotation as it is."""
        node.value = self.visit(node.value) if node.value else None
        return node

    def visit_Return(self, node: Any) -> Any:
        """Record the whole text of a finding, too."""
        node = self.generic_visit(node)
        if self._scope[-1] == "render" and len(self._scope) == 2 and node.value is not None and self._kind == "finding":
            template = Template("finding", self._module, ".".join(self._scope), "(the whole finding)")
            self.templates.append(template)
            node.value = record_call(template, node.value)
        return node


def record_call(template: Template, node: Any) -> ast.Call:
    """Return the expression that records the value of a template and returns it."""
    call = ast.Call(ast.Name("__record_message__", ast.Load()), [ast.Constant("\t".join(template)), node], [])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def list_errors(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of the lab's error classes, which have a message and a hint."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    errors = {"LabError"}
    while more := {one.name for one in classes if errors & {getattr(base, "id", "") for base in one.bases}} - errors:
        errors |= more
    return frozenset(errors)


def list_templates() -> list[Template]:
    """Return all templates, in the order of the file."""
    lab = ROOT / "lab"
    trees = {path.relative_to(lab).as_posix(): ast.parse(path.read_bytes()) for path in sorted(lab.rglob("*.py"))}
    errors = list_errors(trees.values())
    templates = []
    for module, tree in trees.items():
        rewriter = Rewriter(module, errors)
        rewriter.visit(tree)
        templates += rewriter.templates
    for path in sorted({*lab.rglob("*.js"), *lab.rglob("*.j2")} - {*lab.rglob("d3.js")}):
        for match in PAGE_TEXT.finditer(path.read_text(encoding="utf-8")):
            text = " ".join(next(filter(None, match.groups()), "").split())
            if PAGE_WORDS.search(text) and not re.search(r"://|;.*:|\||^(?:if|for) ", text):
                templates.append(Template("page", path.relative_to(lab).as_posix(), "-", text))
    return sorted(dict.fromkeys(templates), key=lambda one: list(KINDS).index(one.kind))


def record_message(key: str, value: object) -> object:
    """Write the value of a template to a file, once per process, and return it."""
    texts = RECORDED.setdefault(key, set())
    text = normalize(". ".join(filter(None, value)) if isinstance(value, tuple) else str(value))
    if len(texts) < MOST_EXAMPLES and text not in texts:
        texts.add(text)
        file = os.open(f"{os.environ[ENVIRONMENT]}/texts", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        os.write(file, f"{json.dumps([key, text])}\n".encode())
        os.close(file)
    return value


RECORDED: dict[str, set[str]] = {}
VARYING = {
    r"(?:/tmp|/dev/shm|/var/tmp)(?:/[^\s/'\",:;)`]+)*/": "/tmp/",
    re.escape(f"{ROOT}/"): "",
    r"0x[0-9a-f]{6,}": "0x7f00",
    r"\b20\d{6}-\d{6}": "20260102-030405",
    r"\blab-(error|test|messages)-\w+": r"lab-\1-x",
}
"""What differs between runs of the tests, and what examples have instead."""


def normalize(text: str) -> str:
    """Return a text as one line, without what differs between runs of the tests."""
    for pattern, stable in VARYING.items():
        text = re.sub(pattern, stable, text)
    text = text.strip().encode("utf-8", "replace").decode().replace("\n", "\\n")
    text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
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
    vars(builtins)["__record_message__"] = record_message
    sys.meta_path.insert(0, Finder)


def run_tests(words: list[str]) -> dict[Template, set[str]]:
    """Run pytest with these words, and return the examples of each template."""
    with tempfile.TemporaryDirectory(prefix="lab-messages-") as folder:
        trees = [ast.parse(path.read_bytes()) for path in (ROOT / "lab").rglob("*.py")]
        Path(folder, "errors").write_text("\n".join(list_errors(trees)), encoding="utf-8")
        hook = (
            f"import sys\nsys.path.append({str(ROOT / 'dev')!r})\nimport list_messages\nlist_messages.install_hook()\n"
        )
        Path(folder, "sitecustomize.py").write_text(hook, encoding="utf-8")
        paths = os.pathsep.join(filter(None, (folder, str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, ENVIRONMENT: folder, "PYTHONPATH": paths}
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *words], cwd=ROOT, env=environment, stdout=sys.stderr, check=False
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
    """Return an example for each template: that of the file if tests still produce it, else the first."""
    chosen = {}
    for template, old in before.items():
        texts = sorted(filter(None, examples.get(template, ())), key=lambda text: (len(text) >= LONGEST, text))
        chosen[template] = old if old in texts or not texts else texts[0]
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
