"""What an agent is started with, and what a rank may say where nobody asks for something else."""

from typing import NamedTuple, Optional

OUTPUT_BYTES = 256 << 20
"""What each rank may print."""
STRICT_OUTPUT_BYTES = 16 << 20
"""The same on a strict cluster."""
NOTES_BYTES = 64 << 20
"""What all notes of a rank may take."""
STRICT_NOTES_BYTES = 4 << 20
"""The same on a strict cluster: three bytes of a note can stand for a list, which takes 20 times as much memory."""
STRICT_OPEN_FILES = 1024
"""Open files of a process on a strict cluster, as most shells limit them: all containers share `fs.file-max`."""
FIRST_UID = 20000
"""Uid in a container of the worker with local rank 0; those after it follow."""


class Config(NamedTuple):
    """The last argument of the agent's process, as JSON."""

    node: str
    root: str
    """A folder of its own."""
    container: bool
    """Whether its file system belongs to this node alone."""
    import_root: str
    """Folder to be put on `sys.path` for `import lab` and for a cold worker's bootstrap."""
    socket: Optional[str] = None
    """Where it listens; None: it speaks over its standard streams."""
    memory_bytes: Optional[int] = None
    """A limit for the agent to enforce; None where the kernel does."""
    disk_bytes: Optional[int] = None
    """What a run may write; None: as much as there is room for."""
    tell_of_full: bool = False
    """Whether it is told where there is no room any more: each place that can be written to has its own limit."""
    foreign: bool = False
    """Whether its image is another one than the lab's own."""
    shared: str = ""
    """The folder that all nodes share."""
    kept: tuple[str, ...] = ()
    """Folders of a container whose files stay after a run: the shared folder and mounted ones."""
    peers: tuple[str, ...] = ()
    """The first and the last address of the nodes of its cluster: packets leave for no other one. Empty: for any."""
    forked: bool = False
    """Whether it shares what it has imported with the process that it was forked from."""
    packages: str = ""
    """A virtual environment with packages that workers use and the agent does not; empty: there is none."""
    open_on_image: Optional[tuple[str, ...]] = None
    """The folders that anybody may write to on the file system of its image, where somebody has looked before."""

    @property
    def strict(self) -> bool:
        """Whether its cluster is for scripts of strangers: there, each place that can be written to has a limit."""
        return self.tell_of_full

    @property
    def notes_bytes(self) -> int:
        """What all notes of a rank may take."""
        return STRICT_NOTES_BYTES if self.strict else NOTES_BYTES

    @property
    def mounts(self) -> bool:
        """Whether it has folders of its machine."""
        return any(folder != self.shared for folder in self.kept)


def ended_file(socket: str) -> str:
    """Where it is said how the agent ended that listened at a socket: its exit code, or 128 and a signal."""
    return f"{socket}.ended"
