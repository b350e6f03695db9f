"""Where folders have short paths: that of a Unix socket has at most 107 bytes."""

from __future__ import annotations

import tempfile

SHORT = tempfile.gettempdir() if len(tempfile.gettempdir()) < 16 else "/tmp"
