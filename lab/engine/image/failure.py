"""Turns what the engine says of a failed build or pull into one sentence and something to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lab.errors import ImageError, ImageUnfit
from lab.words import clip

_AIR_GAPPED = "without a registry: `lab image build --base LOCAL_IMAGE --wheels DIR` (docs/air-gapped.md)"

_HINTS: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "make room where the engine keeps its images; `docker system df` shows what takes it"),
    (r"toomanyrequests|rate limit", "the registry limits anonymous pulls: `docker login`, or wait"),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|NewConnectionError|ReadTimeoutError|Temporary failure in name",
        "pip inside the build cannot reach a package index. With wheels from this machine: "
        "pip download -d wheels torch==VERSION numpy, then lab image build --wheels wheels (docs/air-gapped.md)",
    ),
    (
        r"No matching distribution|Could not find a version",
        "no wheel fits the base image's Python: choose another version of torch, wheels for that Python, "
        "or an index that has them",
    ),
    (r"ensurepip|No module named venv", "the base image's Python needs its venv module (Debian: python3-venv)"),
    (r"python3: (?:command )?not found", "the base image needs Python >= 3.9; name another one with --base"),
    (
        r"dial tcp|no such host|tls:|x509|TLS handshake|timeout|Timeout exceeded|connection re|EOF|lookup ",
        f"the engine cannot reach the registry: check its network and proxy; {_AIR_GAPPED}",
    ),
    (
        r"access denied|unauthorized|not found|manifest unknown|does not exist|No such image|invalid reference",
        f"check the name; `docker login` for a private one; {_AIR_GAPPED}",
    ),
)

_TRANSIENT = re.compile(
    r"TLS handshake timeout|i/o timeout|Timeout exceeded|connection re(?:set|fused)|\bEOF\b|server misbehaving"
    r"|temporary failure|50[234] |Bad Gateway|Service Unavailable|Gateway Time",
    re.IGNORECASE,
)
_COMMAND_FAILED = re.compile(r"^The command '.*' returned a non-zero code: (\d+)$", re.DOTALL)


def is_transient(reason: str) -> bool:
    """Tells whether a failed pull is worth another try: the connection failed, the registry did not refuse."""
    return _TRANSIENT.search(reason) is not None


def pull_failed(image: str, reason: str) -> ImageUnfit:
    """Returns the error for an image that is not here and cannot be pulled."""
    return ImageUnfit(f"the image {image} is not here and cannot be pulled: {one_line(reason)}", _hint(reason))


def build_failed(image: str, reason: str, *, step: str = "", tail: Sequence[str] = ()) -> ImageError:
    """Returns the error for a failed build; the last lines of its output are printed below the sentence."""
    if match := _COMMAND_FAILED.match(reason):
        sentence = f"{step or 'a step'} exited with code {match[1]}"
    else:
        sentence = f"{step}: {one_line(reason)}" if step else one_line(reason)
    text = f"the image {image} cannot be built: {sentence}"
    if tail:
        text += "\n" + "\n".join(f"  | {one_line(line, 160)}" for line in tail)
    return ImageError(text, _hint("\n".join((*tail, reason))) or "the lines above are the end of the build's output")


def one_line(reason: str, limit: int = 300) -> str:
    """Returns the reason on one line, cut off after `limit` characters."""
    return clip(" ".join(reason.split()), limit)


def _hint(text: str) -> str:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), "")
