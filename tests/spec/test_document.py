"""What is no readable YAML file, and the bounds on one that is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lab.errors import ScenarioError
from lab.spec import document
from lab.spec.load import load_scenario
from tests.golden import golden

MAX_BYTES = document.MAX_BYTES
SCRIPT = "script: train.py\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script and a folder of scenarios."""
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal_of(text: str | bytes) -> str:
    Path("scenario.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return refusal_of_path("scenario.yaml")


def refusal_of_path(path: str) -> str:
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(Path(path))
    return refusal.value.message


@pytest.mark.parametrize(
    ("make", "path", "found", "meant"),
    [
        (lambda: Path("scatter.yaml").touch(), "scater.yaml", "no such file", "'scatter.yaml'"),
        (lambda: None, "nowhere/a.yaml", "no such file", "the folder 'nowhere' does not exist"),
        (lambda: [Path("data", n).touch() for n in ("b.yaml", "a.yml")], "data", "is a folder", "a.yml, b.yaml"),
        (lambda: Path("l.yaml").symlink_to("l.yaml"), "l.yaml", "cannot be read", "Too many levels of symbolic links"),
        (lambda: os.mkfifo("pipe.yaml"), "pipe.yaml", "is not a regular file", "a scenario file"),
        (lambda: None, "a\0b.yaml", "cannot be read", ""),
        (lambda: None, "a" * 5000, "cannot be read", ""),
    ],
    ids=["missing", "missing folder", "folder", "loop of links", "pipe", "NUL", "too long"],
)
def test_what_is_no_file_is_refused_with_what_was_meant(
    make: Callable[[], object], path: str, found: str, meant: str
) -> None:
    make()
    message = refusal_of_path(path)
    assert message.startswith(f"{repr(path)[1:-1]}:1:1: {found}")
    assert meant in message


def test_a_file_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lab.spec.document.os.stat", denied)
    assert refusal_of_path("secret.yaml") == golden(1)


def test_a_file_over_1_mib_is_refused() -> None:
    comment = f"{SCRIPT}#"
    Path("scenario.yaml").write_text(comment + "x" * (MAX_BYTES - len(comment)))
    assert load_scenario(Path("scenario.yaml")).name == "scenario"
    message = refusal_of(comment + "x" * (MAX_BYTES - len(comment) + 1))
    assert message.startswith(golden(1))


@pytest.mark.parametrize(
    ("data", "place", "found"),
    [
        (f"{SCRIPT}learn: é".encode() + b"\xe9\n", "2:9", "found the byte 0xe9"),
        (SCRIPT.encode("utf-16"), "1:1", "the file is UTF-16"),
    ],
)
def test_what_is_not_utf8_is_refused_with_its_place(data: bytes, place: str, found: str) -> None:
    message = refusal_of(data)
    assert message.startswith(f"scenario.yaml:{place}: {found}")
    assert "allowed: UTF-8" in message


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    levels = [f"  V{i}: &v{i} [{', '.join([f'*v{i - 1}'] * 10)}]" for i in range(1, 40)]
    message = refusal_of(f"{SCRIPT}env:\n  V0: &v0 [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(levels))
    assert message.startswith(golden(1))


def test_too_many_values_are_refused() -> None:
    assert golden(1) in refusal_of(f"{SCRIPT}args: [{'a,' * 30_000}]\n")


@pytest.mark.parametrize(
    "nested",
    [
        "[" * 100_000,
        "[" * 400 + "]" * 400,
        "{a: " * 400 + "}" * 400,
        "\n" + "".join(" " * depth + "-\n" for depth in range(1, 400)),
    ],
    ids=["open", "lists", "mappings", "blocks"],
)
@pytest.mark.parametrize("loader", [document._LOADER, yaml.SafeLoader], ids=["libyaml", "PyYAML"])
def test_deep_nesting_is_refused(nested: str, loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LOADER", loader)
    assert refusal_of(f"{SCRIPT}args: {nested}").endswith(golden(1))


def test_libyaml_and_pyyaml_s_own_parser_make_the_same_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    def flat(node: object) -> list[object]:
        """What `lab.spec.reading` looks at, node by node."""
        value = getattr(node, "value", None)
        inside = [one for item in value for one in (item if isinstance(item, tuple) else (item,))]
        is_scalar = isinstance(value, str)
        mark = getattr(node, "start_mark")  # noqa: B009
        here = (getattr(node, "id"), getattr(node, "tag"), mark.line, mark.column, value if is_scalar else "")  # noqa: B009
        return [(*here, bool(getattr(node, "style", None) if is_scalar else ""))] + (
            [] if is_scalar else [each for one in inside for each in flat(one)]
        )

    files = sorted(Path(__file__).parents[2].glob("scenarios/**/*.yaml"))
    assert len(files) > 50
    fast = [flat(document.read_document(file)) for file in files]
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    assert fast == [flat(document.read_document(file)) for file in files]
