"""Configuration of an agent, and every message between the lab and an agent; `wire` encodes and decodes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional, Union

OUTPUT_BYTES = 256 << 20
"""Limit for what each rank prints."""
STRICT_OUTPUT_BYTES = 16 << 20
"""The same on a strict cluster."""
NOTES_BYTES = 64 << 20
"""Limit for all notes of a rank."""
STRICT_NOTES_BYTES = 4 << 20
"""The same on a strict cluster. Three bytes of a note can encode a list, which takes 20 times as much memory."""
STRICT_OPEN_FILES = 1024
"""Open files of a process on a strict cluster, the limit in most shells: all containers share `fs.file-max`."""
FIRST_UID = 20000
"""Uid in a container of the worker with local rank 0; the other workers have the next ones."""


class Config(NamedTuple):
    """The last argument of the agent's process, as JSON."""

    node: str
    root: str
    """A folder of its own."""
    container: bool
    """Whether its file system belongs to this node alone."""
    import_root: str
    """Folder that `sys.path` needs for `import lab` and for a cold worker's bootstrap."""
    socket: Optional[str] = None
    """Path at which it listens; None: it uses its standard streams."""
    memory_bytes: Optional[int] = None
    """Memory limit that the agent enforces; None: the kernel enforces one."""
    disk_bytes: Optional[int] = None
    """Bytes that a run may write; None: no limit."""
    strict: bool = False
    """Whether its cluster runs scripts of strangers: then each folder that they can write to has its own limit."""
    foreign: bool = False
    """Whether its image is not the lab's own."""
    shared: str = ""
    """The folder that all nodes share."""
    store: str = ""
    """Folder of the contents that it receives, which the nodes of a machine share; empty: below its own folder."""
    kept: tuple[str, ...] = ()
    """Folders of a container whose files stay after a run: the shared folder and mounted ones."""
    peers: tuple[str, ...] = ()
    """First and last address of the nodes of its cluster, the only ones that packets may leave for. Empty: any
    address."""
    forked: bool = False
    """Whether it shares its imported modules with the process that it was forked from."""
    packages: str = ""
    """A virtual environment with packages that workers use and the agent does not; empty: there is none."""
    open_on_image: Optional[tuple[str, ...]] = None
    """Folders of its image's file system that anybody may write to; None: the agent has to search for them."""

    @property
    def notes_bytes(self) -> int:
        """Limit for all notes of a rank."""
        return STRICT_NOTES_BYTES if self.strict else NOTES_BYTES

    @property
    def mounts(self) -> bool:
        """Whether folders of its machine are mounted."""
        return any(folder != self.shared for folder in self.kept)


def ended_file(socket: str) -> str:
    """Return the path of the file with the exit status of a socket's agent: its exit code, or 128 + signal."""
    return f"{socket}.ended"


if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_):
        """For type checkers only."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class Message:
    """A value with fields like a NamedTuple, but with inheritance: fields of the base class come first."""

    kinds: ClassVar[dict[str, type[Message]]] = {}
    """Every class of messages, by its name on the wire."""
    _keys: ClassVar[Mapping[str, str]] = {}
    """Names of fields in plain data, where they differ from the attributes: older records have them."""
    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, keys: Mapping[str, str] | None = None) -> None:
        cls._keys = keys or {}
        Message.kinds[cls.__name__.lower()] = cls
        cls._fields = (*cls._fields, *(name for name in cls.__annotations__ if name not in cls._fields))
        cls._field_defaults = {name: getattr(cls, name) for name in cls._fields if hasattr(cls, name)}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        values = vars(self)
        values.update(self._field_defaults)
        values.update(zip(self._fields, arguments))
        values.update(named)
        if len(values) != len(self._fields) or not values.keys() >= {*self._fields}:
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._fields)}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(self._asdict().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def _asdict(self) -> dict[str, Any]:
        return {self._keys.get(name, name): getattr(self, name) for name in self._fields}

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**{**vars(self), **changes})


class OfRun(Message):
    """A message about a run."""

    run: str


class OfRank(OfRun):
    """A message about a rank of a run."""

    rank: int


class FromRank(Message):
    """A statement of a rank, or an agent's report about it."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
    attempt: str = ""
    """Identifies the workers that meet each other in a run; empty where the launcher makes only one attempt."""


class NodeEvent(Message):
    """An agent's report about its node."""

    time: float
    node: str = ""
    run: str = ""


class Named(FromRank):
    """A script named another backend, or another address, for its process groups than that of the run."""

    named: str = ""
    backend: str = ""
    """The backend or address of the run."""
    instead: bool = False
    """Whether the groups use that of the run instead of the named one."""
    at: str = ""
    """Line of the script, `file:line`."""


MOST_LEFT_OUT = 20
"""Limit for the paths in a message; of all other paths it has only the number."""


# -- from an agent to the lab, and unchanged into the events of the record
class Staged(Message, keys={"omitted": "more"}):
    """The check has copies of the files that the ranks of its node left, except for these."""

    time: float
    left_out: dict[str, str]
    """Reason by path, a sentence without a full stop, such as `it is a pipe`."""
    node: str = ""
    run: str = ""
    omitted: int = 0
    """Number of other paths that were left out."""


# -- from the lab to an agent
class AskTime(OfRun):
    """Ask for the time."""

    asked: float
    """Unix time by the lab's clock; the answer repeats it."""


# -- from an agent to the lab
class ClockReading(OfRun):
    """The time on a node."""

    asked: float
    time: float
    """Unix time by the node's clock."""
    monotonic_s: float
    """Time by the monotonic clock, which traces use."""


NOTHING = ""
"""The rank's standard input is empty, and its debugger has no terminal."""
FED = "fed"
"""The rank's standard input is what the lab sends."""
ON_REQUEST = "on request"
"""The rank gets the terminal when its debugger asks for it."""
OWN = "own"
"""The rank has the terminal from its start to its end."""
ANOTHERS = "another's"
"""Another rank has the terminal from the start: this rank passes over its breakpoints."""
CALLED = "called"
"""The rank executes calls of its caller instead of a script, and answers; its standard input is empty."""
TERMINAL = 3
"""Stream of the rank's terminal, next to 1 and 2 for standard output and error."""
ANSWERS = 4
"""Stream of the answers of a rank that is called; it is no output, and not in any log."""


class Input(OfRank):
    """From the lab: input for a rank."""

    data: bytes
    last: bool = False
    """Whether this is the end of the input."""


class InputDelivered(OfRank):
    """From an agent: the number of input bytes that the rank has received."""

    bytes: int
    closed: bool = False
    """Whether the rank has closed its input."""


class Window(OfRank):
    """From the lab: the size of the terminal."""

    rows: int
    columns: int


class Breakpoint(FromRank):
    """From a worker and its agent: the worker's debugger asks for the terminal."""

    at: str = ""
    """`file:line`."""


class Continued(FromRank):
    """From a worker and its agent: the worker's debugger does not need the terminal any more."""


# -- from the lab to an agent
class Neighbours(Message):
    """Tell a node the hardware addresses of the other nodes of a large cluster."""

    address: str
    """Address of the node itself."""
    hardware: dict[str, str]
    """Hardware address by address of each other node."""


class ActionRequest(Message):
    """Ask to apply, undo, or inspect a fault action."""

    id: str
    """Identifies the request in the answer."""
    action: str
    """Feature and function, such as `faults.undo_links`: see `lab.features.faults.on_node.actions`."""
    parameters: dict[str, Any]
    """Arguments of the function."""


class Release(OfRank):
    """Let a held rank, or EVERY_RANK, continue."""

    end: str
    """Name of the channel on which it waits: `step`, `hold` of a fault, or `grant` for the terminal; see `channels`."""
    line: str
    """Text for that channel: the index of the last allowed call of its trace, or RUN_ON; or, as JSON, the number of its
    `hold`, and the `action` that it performs before it continues."""


# -- from an agent to the lab
class ActionResult(Message):
    """The answer to an `ActionRequest`."""

    id: str
    facts: dict[str, Any]
    """Measurements of the action."""
    error: str = ""
    """Why the action failed, a sentence; empty: it succeeded."""


class Reached(FromRank):
    """A rank is held at a point that triggers a fault; workers send this to their agent, too."""

    hold: int = 0
    """Number of this hold, unique in its process."""
    trigger: int = 0
    """Index of the fault in the plan."""
    heals: bool = False
    """Whether the event heals the fault."""
    call: int = 0
    """Number of the rank's call of the operation, or of the phase or note of this name; from 1."""
    value: Any = None
    """Value of the note."""
    tensors: tuple[dict[str, Any], ...] = ()
    """Tensors of the call: `elements`, `dtype`, and `bits` of a number."""


_FIRST = -16
MOST_OF_A_WORKER = 1024
"""Limit for the recorded processes that one worker started."""


def number_of(worker: int, nth: int) -> int:
    """Return the number that replaces the rank of the nth process that a worker started; below -15."""
    return _FIRST - worker * MOST_OF_A_WORKER - nth


def worker_of(number: int) -> int:
    """Return the rank of the worker that started a process."""
    return (_FIRST - number) // MOST_OF_A_WORKER


def nth_of(number: int) -> int:
    """Return the index, from 0, of a process among those that its worker started."""
    return (_FIRST - number) % MOST_OF_A_WORKER


def is_joined(number: int) -> bool:
    """Return whether a number that replaces a rank is that of such a process."""
    return number <= _FIRST


# -- from such a process to its agent, with descriptors
class Joining(FromRank):
    """The process is about to join a process group as this rank.

    Descriptors of its trace and its stack, both memfds, come with this.
    """

    world_size: int = 0
    meeting: str = ""
    """Where the ranks meet, if known: a port or a path."""
    thread: int = 0
    """Python's identifier of the thread that is this rank; 0: the process is."""


class Leaving(FromRank):
    """The process ends by itself."""

    code: Optional[int] = None
    """Exit code; None: unknown."""
    stays: bool = False
    """Whether only its rank ends: it has left the world."""


# -- from an agent to the lab, and unchanged into the events of the record
class Joined(FromRank, keys={"claimed_rank": "said"}):
    """A process that a worker started joins a process group; its number replaces its rank, see `number_of`."""

    pid: int = 0
    claimed_rank: int = 0
    """The rank that the process claims."""
    world_size: int = 0
    meeting: str = ""


SHARED = "shared/"
"""Prefix of the path of a file in the shared folder."""


MOST_FILES = 100_000
"""Limit for the reported files of a run."""


class MadeFile(NamedTuple):
    """A file that a run made."""

    path: str
    """Relative to the shipped folder; or, behind `SHARED`, relative to the shared folder."""
    rank: int
    """Its owner; the first rank of the node if unknown."""
    bytes: int
    fingerprint: str = ""
    """Hash of its contents; empty if the lab does not need it, or the file cannot be read."""
    executable: bool = False
    """Whether its owner may execute it; the rest of its mode is not sent."""


class Made(OfRun):
    """From an agent: every process of the run has ended and made these files."""

    files: tuple[MadeFile, ...]
    omitted: int = 0
    """Number of other files."""
    folder: str = ""
    """The shipped folder in a container whose engine can read it; empty: only the agent can."""


class Fetch(OfRun):
    """From the lab: ask for some of these files, instead of those asked for before; then for the end of the run."""

    paths: tuple[str, ...]


class Filling(OfRun):
    """From an agent, once: the files that the run made on this node have reached `Claim.outputs_bytes`."""

    bytes: int


class Piece(OfRun):
    """From an agent: a part of such a file."""

    path: str
    data: bytes
    last: bool


STARTER = -2
"""Replaces the rank and the local rank of a starter. The scenario's check has -1."""
PYTHON = "{python}"
"""Placeholder in a starter's argv for the Python of the node."""


class WorkerStart(NamedTuple):
    """The start of one worker or starter."""

    rank: int
    local_rank: int
    env: dict[str, str]
    argv: list[str]
    """Path of the script, relative to the shipped folder, and its arguments; for a starter, a program and its
    arguments."""
    script: str = ""
    """Path of the script if it is not `argv[0]`."""
    stdin: str = NOTHING
    """Kind of its standard input: one of the constants above, such as `FED`."""
    attempt: str = ""
    """See `FromRank`."""
    modules: tuple[str, ...] = ()
    """Modules that the Python of the node needs for a starter."""
    triggers: tuple[dict[str, Any], ...] = ()
    """Points at which it is held, from `Prepare`. A trigger with `sidecar`, FEATURE.MODULE, instead starts a process of
    that module next to the worker."""


class WorkerSettings(NamedTuple):
    """Settings that all workers of a run on one node share."""

    folder: str
    """Working folder."""
    import_root: str
    packages: str = ""
    """Virtual environment of the workers; empty: none."""
    trace: bool = False
    """Whether calls are recorded."""
    trace_values: Optional[int] = None
    step: bool = False
    """Whether workers are held before each call."""
    cold: bool = False
    """Whether each worker is a new interpreter."""


class Launch(NamedTuple):
    """What the children of a launcher's process need to become workers."""

    settings: WorkerSettings
    workers: tuple[WorkerStart, ...]
    """Planned workers; empty: the launcher decides."""
    triggers: tuple[dict[str, Any], ...]
    socket: str
    """Path of the agent's socket for the launcher's process."""
    home: str
    environment: dict[str, str]
    """Values of workers that replace variables of the launcher."""


class Store(NamedTuple):
    """The rendezvous store, which the first node starts before any worker."""

    address: str
    port: int
    world_size: int


STUCK_S = 0.5
"""Minimum time without an acknowledgement, in spite of retransmissions, after which data counts as stuck."""
BLINK_S = 0.2
"""Minimum time that a kernel waits before it retransmits."""
LONG_WAYS = 4
"""Data is stuck only if that time is at least so many round trips."""


class Connections(NodeEvent):
    """State of all TCP connections of a node to one other node, as its kernel reports it."""

    peer: str = ""
    """The other node: its address in an agent's message, its name in the record."""
    number: int = 0
    """Number of connections."""
    unacknowledged_bytes: int = 0
    """Bytes that were sent, but not acknowledged."""
    silent_s: float = 0.0
    """Minimum time without an answer from the other kernel in spite of retransmissions; the longest of all
    connections."""
    sent_again: int = 0
    """Segments retransmitted since the connections were made."""
    segments_out: int = 0
    segments_in: int = 0
    """All segments sent and received, with retransmitted ones."""
    acknowledged_bytes: int = 0
    """Bytes sent and acknowledged since the connections were made."""
    round_trip_s: float = 0.0
    """Smoothed round trip time of the busiest connection; 0: unknown."""
    most_bytes: int = 0
    """Bytes that the busiest connection has carried."""
    busy_s: float = 0.0
    """Time for which the busiest connection had data on its way."""
    reader_late_s: float = 0.0
    """Part of that time in which the receiver's buffer was full because its process did not read."""
    answers: Optional[bool] = None
    """Whether the other kernel answered a connection attempt; None: there was no attempt."""

    @property
    def stuck(self) -> bool:
        """Whether data does not get through, in one direction or the other; a long round trip alone does not count."""
        return self.silent_s >= max(STUCK_S, LONG_WAYS * self.round_trip_s)


class ThreadRaised(FromRank):
    """A thread of a script, not its main one, ended by an uncaught error."""

    thread: str = ""
    """Its name."""
    error: str = ""
    at: str = ""
    """Innermost line in the script's folder, `file:line`; empty: none."""


EVERY_RANK = -1
"""Replaces a rank: all ranks."""
RUN_ON = 1 << 62
"""Replaces the index of a call: the rank is not held any more."""


class Follow(OfRun):
    """From the lab: ask for traces as soon as they are written; sent before the workers are prepared."""

    step: bool = False
    """Whether each worker is held before each recorded call."""


PROTOCOL = 17
"""Version of these messages. A client and an agent of different versions stop at once, with an error."""
LACKS = "needs"
OLDEST_TORCH = "2.4"
"""Oldest supported version, as in pyproject.toml."""


def is_older(torch: str, least: str) -> bool:
    """Return whether a version of torch, such as `2.9.1+cpu`, is older than one such as `2.10`."""
    one, other = ([int(number) for number in re.findall("[0-9]+", text)[:2]] for text in (torch, least))
    return one < other


# -- from the lab to an agent
class Hello(Message):
    """Ask whether the agent is ready."""

    version: int = PROTOCOL


class Claim(OfRun):
    """Ask for the node, for one run."""

    owner: str
    """Owner of the run; refused claims of other runs report this name."""
    lease_s: float
    """The agent ends the run after so many seconds without a message."""
    uid: Optional[int] = None
    gid: Optional[int] = None
    """User and group of the workers in a container; None: each rank of a node has its own user."""
    first_uid: int = FIRST_UID
    """Uid of the first of those users; the others have the next ones."""
    cold: bool = False
    trace: bool = False
    """Whether calls are recorded."""
    trace_values: Optional[int] = None
    """Limit for the recorded elements of a tensor; None: the recorder's default."""
    output_bytes: int = OUTPUT_BYTES
    """Limit for what each rank prints."""
    outputs_bytes: int = 0
    """Size of the files that the run makes on the node at which the agent reports it; 0: never."""
    least_torch: str = ""
    """Oldest version of torch that the run can use; empty: any. A node with an older one refuses the run."""
    torch_user: str = "the run"
    """What needs that version."""
    version: int = PROTOCOL


class Folder(OfRun):
    """Describe the script's folder: all of it, or what changed since a state that the node may know."""

    key: str
    """Identifies the folder on this machine."""
    token: str
    """Identifies its state."""
    base: str = ""
    """The state that the changes apply to; empty: `entries` are the whole folder."""
    entries: str = ""
    """See `lab.node.contents.write_entries`."""
    removed: tuple[str, ...] = ()
    """Paths that are in the base and not in the folder."""
    for_check: bool = False
    """Whether only the scenario's check sees the folder, and its contents are not kept."""


class Content(OfRun):
    """A part of a stream of contents, see `lab.node.contents.Receiver`."""

    data: bytes
    last: bool = False
    """Whether the node has to look again for what it lacked."""
    for_check: bool = False
    """Whether it belongs to the folder of the check."""


class Prepare(OfRun):
    """Ask for workers, or starters, that wait at their gate; repeated during a run to add more."""

    workers: tuple[WorkerStart, ...]
    store: Optional[Store] = None
    emptied: str = ""
    """Folder to empty first."""
    starters: tuple[WorkerStart, ...] = ()
    """If there are any, they start the workers; the plan of each worker then completes its environment."""
    triggers: tuple[dict[str, Any], ...] = ()
    """Points at which ranks are held for a fault: index of the fault in the plan (`trigger`), whether it `heals`, a
    `rank` if specified, and `op` or `phase` with `count` and `edge`, or `note`."""


class Go(OfRun):
    """Open the gates of the workers."""


class Ping(OfRun):
    """Report that the client is still there."""


class Stop(OfRun):
    """Ask to end all workers: SIGTERM, or SIGKILL where `hard`."""

    hard: bool


class Stacks(OfRun):
    """Ask for the stacks of the workers."""


CHECK = -1
"""Replaces a rank: the scenario's own check."""
FILES_IN = "files in "
"""Name of a limit of a folder of a node, followed by the folder."""


class Check(OfRun):
    """Ask to run the scenario's own check of the results."""

    reference: str
    """`file.py:function`."""
    results: list[dict[str, Any]]
    """Results of all ranks, as in `result.json`."""
    env: dict[str, str]


class Finish(OfRun):
    """Ask the agent to remove everything of the run; wanted files are fetched first."""

    outputs: Optional[tuple[str, ...]] = None
    """Patterns of wanted files; empty: all files that the run made; None: none."""
    compared_bytes: int = 0
    """Limit for the size of all files that get a fingerprint; 0: files of other nodes cannot be equal."""
    shared: str = ""
    """Another folder, besides the shipped one, whose files are wanted."""


# -- from an agent to the lab
class Ready(Message):
    """The answer to hello."""

    node: str
    torch: str
    """Its version."""
    version: int = PROTOCOL
    idle_s: float = 0.0
    """Seconds since the last message about a run, or since the start; 0 during a run."""
    store: str = ""
    """The same for nodes that share the contents that they receive."""
    stored_bytes: int = 0
    """Size of these contents."""


class Claimed(OfRun):
    """The node takes part in the run."""

    time: float
    boot: str
    """Identity of the node's clock, see `clock_id`."""


class Busy(OfRun):
    """Another run has the node."""

    holder: str
    """The run that has the node."""
    owner: str
    age_s: float


class Refused(OfRun):
    """The agent did not act on a message."""

    what: str
    """Kind of that message; `node` if the node cannot take part in any run, `run` if the agent ended the whole run,
    `LACKS` if the node lacks what the run needs."""
    reason: str
    spoken: int = 0
    """Version of the protocol that the message had, if that is the reason; 0: it is not."""


class Lacks(OfRun):
    """What the node misses for the script's folder; without digests and `everything`: nothing any more."""

    store: str
    """The same for nodes that share the contents that they receive."""
    digests: tuple[str, ...] = ()
    """Contents that are missing."""
    everything: bool = False
    """Whether it does not know the base of the changes."""


class Prepared(OfRun):
    """The workers wait at their gate, and the store listens."""


class Output(OfRank):
    """Something that a worker or starter printed."""

    stream: int
    """1: standard output, 2: standard error, 3: its terminal, 4: its answers to its caller."""
    time: float
    data: bytes
    attempt: str = ""


class Trace(OfRank):
    """Complete lines from a worker's recorder."""

    data: bytes
    attempt: str = ""


class Cleaning(OfRun):
    """The agent is still ending processes of the run, or removing its files."""


class Finished(OfRun):
    """The node has nothing of the run any more."""


# -- from an agent to the lab, and unchanged into the events of the record; the defaults are for damaged ones
class Limited(NodeEvent):
    """A rank, or without a rank a node, reached a limit; the last of several reports about the same limit counts."""

    rank: Optional[int] = None
    what: str = "output"
    """For a rank, in bytes: `output`, `notes`, or a kind of `trace`; for a node: `disk`, `processes`, `memory`, or
    `files in FOLDER`."""
    limit: int = 0
    excess: int = 0
    """Bytes that were dropped or written, 0 if unknown; or how often the kernel refused or killed something."""
    attempt: str = ""


class Started(FromRank):
    """The gate of a worker opened."""

    pid: int = 0


class Stack(FromRank):
    """The stack of a worker."""

    text: str = ""
    load: float = 0.0
    """Share of the time in which it, or a process below it, ran or waited for a core just before."""
    used_s: float = 0.0
    """See `read_used_s`, until then."""


class Halted(FromRank):
    """A signal stopped or continued a worker."""

    signal: str = ""
    """The signal that stopped it; empty: it was continued."""


class Exited(FromRank):
    """A worker ended."""

    code: Optional[int] = None
    """None: a signal killed it."""
    signal: Optional[str] = None
    out_of_memory: bool = False
    stopped: bool = False
    """Whether the lab, or its starter, had stopped it."""
    error: str = ""
    """The error that it raised."""
    traceback: str = ""
    raised: Optional[float] = None
    """Unix time of that error, which is earlier than the end."""
    stack: str = ""
    """Output of faulthandler when a signal killed it, or when it ended before its agent reported its stack."""
    memory_bytes: Optional[int] = None
    """Memory that it used when the agent killed it because memory ran out."""


class Note(FromRank):
    """A value that a script recorded with `lab.note`; the lab writes it into the record."""

    name: str = "?"
    value: Any = None


class Raised(FromRank):
    """The error that ended a script."""

    error: str = ""
    traceback: str = ""


class Launched(FromRank):
    """A process of a starter became a worker; its descriptors come with this."""

    local_rank: int = 0
    pid: int = 0
    """Pid of the worker; its parent sends this."""
    channels: tuple[str, ...] = ()
    """Names of the descriptors, see `channels`; `status` has its wait statuses."""


class Imported(FromRank):
    """Slow parts of torch that a script had to import itself."""

    names: tuple[str, ...] = ()


Statement = Union[Note, Named, Raised, Imported, Breakpoint, Continued, Joining, Leaving, Reached, ThreadRaised,
                  Launched]  # fmt: skip
