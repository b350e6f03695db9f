"""The index of a record is locked for as long as somebody writes it; by that one can see that the run goes on."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import BinaryIO

from lab.record.layout import INDEX
from lab.record.record_files import open_file

_LOOKS = 50


def hold(file: BinaryIO) -> None:
    """Lock a file until it is closed or this process is dead: so one can see that the run goes on."""
    for _ in range(_LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:  # somebody is just looking whether it is locked
            time.sleep(0.001)
        except OSError:  # a file system without locks
            return


def is_held(folder: Path) -> bool:
    """Whether somebody has locked the index of the record in this folder.

    Raises:
        FileNotFoundError: it has no index.
        RecordError: its index is no regular file.
    """
    try:
        with open_file(folder, INDEX) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        raise
    except OSError:
        pass
    return False
