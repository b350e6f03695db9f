"""What a person reads when an image cannot be had."""

from __future__ import annotations

import pytest

from lab.features.image.make import build_failed, is_transient, pull_failed
from tests.golden import golden


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ('Get "https://r/v2/": dial tcp: lookup r on 10.0.0.1:53: no such host', "cannot reach the registry"),
        ('Get "https://r/v2/": x509: certificate signed by unknown authority', "cannot reach the registry"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "check the name"),
        ("manifest for python:9 not found: manifest unknown", "check the name"),
        ("toomanyrequests: You have reached your pull rate limit", "docker login"),
        ("write /var/lib/x: no space left on device", "free space"),
    ],
)
def test_a_failed_pull_says_why_and_what_to_do(reason: str, hint: str):
    error = pull_failed("x:1", reason)
    assert error.message == golden(1, reason)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "pip download"),
        ("ERROR: No matching distribution found for torch==9.9", "no wheel fits"),
        ("The virtual environment was not created because ensurepip is not available", "python3-venv"),
        ("/bin/sh: 1: python3: not found", "Python >= 3.9"),
        ("something nobody foresaw", "the end of the build's output"),
    ],
)
def test_a_failed_build_shows_its_end_and_a_hint_that_fits(line: str, hint: str):
    error = build_failed(
        "x:1", "The command '/bin/sh -c a && b' returned a non-zero code: 2", step="step 3/9", tail=["before", line]
    )
    assert error.message == golden(1, line)
    assert hint in error.hint


@pytest.mark.parametrize(
    "reason",
    ["net/http: TLS handshake timeout", "read: connection reset by peer", "unexpected EOF", "dial tcp: i/o timeout"],
)
def test_a_lost_connection_is_worth_another_try(reason: str):
    assert is_transient(reason)


@pytest.mark.parametrize(
    "reason", ["", "manifest unknown", "no such host", "pull access denied", "x509: certificate has expired"]
)
def test_a_refusal_is_not_worth_another_try(reason: str):
    assert not is_transient(reason)
