"""Signs where the encoding of a terminal or file has only plain letters: one for one, so that pictures still fit."""

from __future__ import annotations

import codecs

SUBSTITUTE = "lab-plain"
"""The error handler's name, as `open` and `reconfigure` take it."""

_PLAIN = dict(zip("✔✘∞…–─⋯│┌┐└┘├┤┬┴┼→▶←×·µΣΠ±█▏", "+x~~---|+++++++++>><x.uSP~#|", strict=True))


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return "".join(_PLAIN.get(one) or ascii(one)[1:-1] for one in found), error.end


codecs.register_error(SUBSTITUTE, _substitute)
