"""Find the templates of messages in the source of the lab, and rewrite a module so that each records its value.

A template is a text in the source, with `{name}` for each value and `[a | b]` for alternatives.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORDER = "__record_message__"
"""Name of the built-in function that rewritten modules call."""
KINDS = {
    "error": "Errors, and their hints",
    "finding": "Verdicts and findings",
    "progress": "Progress",
    "output": "Output",
    "help": "Help of verbs and options",
    "text": "Texts and parts of sentences",
    "page": "Pages (without examples)",
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
WORDS = re.compile(r"\b[A-Za-z]{2,}\b.* [a-z]{2,}\b")
CODE = re.compile(
    r"[\w.]*$|<\w+ \w+=|.*\\[bBdsSwW(\[]|[^ ]*\|[A-Z]"  # names, markup, regular expressions
    r"|(?s:.*(?:; do |\bdo\n))|[\w., ()]*\bdef \w+\(|from .+ import |import (?:\{|[\w., ]+[;\n(])"
)
PAGE_TEXT = re.compile(
    r"""(?:(?:title|aria-label|placeholder)=|(?<![=\w-]))"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`|>([^<>{}`";=]+)<"""
)
PAGE_WORDS = re.compile(r"^[A-Z✔✘].* [a-z]{2,}|\b[a-z]{2,}\b[^{}]* [a-z]{2,}[^{}]* [a-z]{2,}\b")


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


def one_line(text: str) -> str:
    """Return a text without spaces around it, and with its line breaks and control characters escaped."""
    text = text.strip().encode("utf-8", "replace").decode()
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


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
        if isinstance(node, ast.Name | ast.expr_context | ast.operator | ast.alias | ast.arguments):
            return node
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
        is_message = WORDS.search(re.sub(r"\{[^}]*\}", "{}", text)) or (
            self._is_direct and re.search("^[a-z]+\n?$|[a-z]{3}.* | .*[a-z]{3}", text)
        )
        if self._kind is None or not is_message or CODE.match(text):
            return node
        text = f"hint: {text}" if self._kind == "hint" else text
        kind = "error" if self._kind == "hint" else self._kind
        template = Template(kind, self._module, ".".join(self._scope) or "-", one_line(text))
        self.templates.append(template)
        return record_call(template, node)

    def _visit_scope(self, node: Any) -> Any:
        variables = self._variables
        if not variables and not isinstance(node, ast.ClassDef):  # those of a function hold for functions in it
            self._variables = self._list_variables(node)
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
        is_error = name in self._errors or name == "on_os_error"
        kind = "error" if is_error or name.endswith("Error") else CALLS.get(name, self._kind) or None
        for at, argument in enumerate(call.args):
            yield argument, "hint" if is_error and at == 1 else kind
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
    call = ast.Call(ast.Name(RECORDER, ast.Load()), [ast.Constant("\t".join(template)), node], [])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def list_errors(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of the lab's error classes, which have a message and a hint."""
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
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
