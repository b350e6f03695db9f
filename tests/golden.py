"""The sentences that tests expect, in one file: golden.yaml. Whoever changes what the lab says changes them there."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("golden.yaml")


@cache
def read_golden() -> dict[str, dict[str, dict[int, str]]]:
    """Of each file of tests, each test and each number: the sentence, or a part of it."""
    sentences: dict[str, dict[str, dict[int, str]]] = yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return sentences


def golden(number: int, *values: object) -> str:
    """The sentence of the running test that has this number, with these values in place of `{0}`, `{1}`, ..."""
    path, *names = re.split(r"[\[@ ]", os.environ["PYTEST_CURRENT_TEST"])[0].split("::")
    sentence = read_golden()[path][".".join(names)][number]
    return sentence.format(*values) if values else sentence
