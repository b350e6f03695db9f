"""What an agent is started with, and every message between the lab and an agent; `wire` encodes and decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional, Union

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
    strict: bool = False
    """Whether its cluster is for scripts of strangers: there, each place that can be written to has its own limit."""
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


if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_):
        """For type checkers only."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class Message:
    """A value with fields, as those of a NamedTuple, but a class derived from it has its fields too, before its own."""

    kinds: ClassVar[dict[str, type[Message]]] = {}
    """Every class of messages, by its name on the wire."""
    _keys: ClassVar[Mapping[str, str]] = {}
    """Keys in plain data of fields that have another name there: that of older records."""
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
    """What a rank states, or an agent reports of it."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
    attempt: str = ""
    """The workers of a run that meet one another have the same; empty where the launcher knows one attempt only."""


class NodeEvent(Message):
    """What an agent reports of its node."""

    time: float
    node: str = ""
    run: str = ""


class Named(FromRank):
    """A script named another backend for its process groups than the run has."""

    named: str = ""
    backend: str = ""
    """That of the run."""
    instead: bool = False
    """Whether the groups got it all the same, instead of the one that was named."""
    at: str = ""
    """The line of the script, `file:line`."""


MOST_LEFT_OUT = 20
"""The most paths that a message names; of further ones it holds only the number."""


# -- from an agent to the lab, and unchanged into the events of the record
class Staged(Message, keys={"omitted": "more"}):
    """The check is given copies of what the ranks of its node left, but for these."""

    time: float
    left_out: dict[str, str]
    """By path: why the check is not given it, as a sentence without a full stop, such as `it is a pipe`."""
    node: str = ""
    run: str = ""
    omitted: int = 0
    """How many paths besides these were left out."""


# -- from the lab to an agent
class AskTime(OfRun):
    """Asks for the time."""

    asked: float
    """Unix time by the lab's clock: it is in the answer."""


# -- from an agent to the lab
class ClockReading(OfRun):
    """What time it is on a node."""

    asked: float
    time: float
    """Unix time by the node's clock."""
    monotonic_s: float
    """What the monotonic clock shows there, by which traces are written."""


NOTHING = ""
"""A rank's standard input is empty, and there is no terminal for its debugger."""
FED = "fed"
"""What somebody sends is a rank's standard input."""
ON_REQUEST = "on request"
"""A rank is given the terminal when its debugger asks for it."""
OWN = "own"
"""The terminal is a rank's from its start to its end."""
ANOTHERS = "another's"
"""The terminal is another rank's from the start: this one passes over its breakpoints."""
CALLED = "called"
"""A rank takes calls from its caller in the place of a script, and answers; its standard input is empty."""
TERMINAL = 3
"""Beside 1 and 2, standard output and error: the stream of what is shown on the terminal that a rank has."""
ANSWERS = 4
"""The stream of what a rank that is called answers; it is no output, and not part of any log."""


class Input(OfRank):
    """From the lab: what a rank is to read."""

    data: bytes
    last: bool = False
    """Whether nothing follows."""


class InputDelivered(OfRank):
    """From an agent: so much of it the rank has been given."""

    bytes: int
    closed: bool = False
    """Whether nobody reads it any more."""


class Window(OfRank):
    """From the lab: how large the terminal is."""

    rows: int
    columns: int


class Breakpoint(FromRank):
    """From a worker, and its agent: its debugger asks for the terminal."""

    at: str = ""
    """`file:line`."""


class Continued(FromRank):
    """From a worker, and its agent: its debugger has no use for the terminal now."""


# -- from the lab to an agent
class Neighbours(Message):
    """Tells a node where the others of a large cluster are."""

    address: str
    """Its own."""
    hardware: dict[str, str]
    """By address of another one: its hardware address."""


class ActionRequest(Message):
    """Asks for a fault action, for it to be taken back, or how it is with it."""

    id: str
    """Names the request, in the answer."""
    action: str
    """The feature and its function, such as `faults.undo_links`: see `lab.features.faults.on_node.actions`."""
    parameters: dict[str, Any]
    """What there is to say of it."""


class Release(OfRank):
    """Lets a rank, or EVERY_RANK, go on that is held."""

    end: str
    """Where it waits: `step`, `hold` of a fault, or `grant`, where it asked for the terminal; see `channels`."""
    line: str
    """What it is told there: up to which call of its trace it may go, or RUN_ON; or, as JSON, the number of its `hold`,
    and the `deed` that it is to do before it goes on."""


# -- from an agent to the lab
class ActionResult(Message):
    """The answer to a request for a deed."""

    id: str
    facts: dict[str, Any]
    """What was found where it was done."""
    error: str = ""
    """Why it could not be done, a sentence; empty: it was."""


class Reached(FromRank):
    """A rank is held at a point that a fault waits for; also what a worker says to its agent."""

    hold: int = 0
    """A number of its own for this hold."""
    trigger: int = 0
    """Index of the fault in the plan."""
    heals: bool = False
    """Whether it is the event that heals it."""
    call: int = 0
    """The how-manieth of that rank's calls of the operation, phases of the name, or notes of the name; from 1."""
    value: Any = None
    """What it notes."""
    tensors: tuple[dict[str, Any], ...] = ()
    """The tensors that its call brings: `elements`, `dtype`, and `bits` of a number."""


_FIRST = -16
MOST_OF_A_WORKER = 1024
"""So many processes that one worker started are on record."""


def number_of(worker: int, nth: int) -> int:
    """What stands in the place of a rank in messages about the nth process that a worker started; below -15."""
    return _FIRST - worker * MOST_OF_A_WORKER - nth


def worker_of(number: int) -> int:
    """The rank of the worker that started a process."""
    return (_FIRST - number) // MOST_OF_A_WORKER


def nth_of(number: int) -> int:
    """Which of those it is that this worker started, from 0."""
    return (_FIRST - number) % MOST_OF_A_WORKER


def is_joined(number: int) -> bool:
    """Whether what stands in the place of a rank is the number of such a process."""
    return number <= _FIRST


# -- from such a process to its agent, with descriptors
class Joining(FromRank):
    """It is about to join a process group as this rank; with it come its trace and its stack, both memfds."""

    world_size: int = 0
    meeting: str = ""
    """Where the ranks meet, as far as that can be told: a port, a path."""


class Leaving(FromRank):
    """It ends by itself."""

    code: Optional[int] = None
    """None where it cannot know."""


# -- from an agent to the lab, and unchanged into the events of the record
class Joined(FromRank, keys={"claimed_rank": "said"}):
    """A process that a worker started joins a process group; in the place of its rank is its number, `number_of`."""

    pid: int = 0
    claimed_rank: int = 0
    """Which rank it says that it is."""
    world_size: int = 0
    meeting: str = ""


class LeftRunning(NodeEvent):
    """A process that a script had started was still there when all workers had ended, and was stopped."""

    pid: int = 0
    rank: Optional[int] = None
    """Whose it was; None where that cannot be told."""
    command: str = ""


SHARED = "shared/"
"""Stands before the path of a file in the shared folder."""


class MadeFile(NamedTuple):
    """A file that a run made."""

    path: str
    """Below the folder that was shipped; below the shared one, behind `SHARED`."""
    rank: int
    """Whose it is; the first rank of the node where that cannot be told."""
    bytes: int
    fingerprint: str = ""
    """Of its contents; empty where it is too large to be fetched, or cannot be read."""
    executable: bool = False
    """Whether its owner may execute it; nothing else of its mode is sent."""


class Made(OfRun):
    """From an agent: every process of the run has ended, and this is what they made."""

    files: tuple[MadeFile, ...]
    omitted: int = 0
    """How many more there are."""


class Fetch(OfRun):
    """From the lab: asks for some of these files; then nothing of the run is to be left."""

    paths: tuple[str, ...]


class Piece(OfRun):
    """From an agent: a part of such a file."""

    path: str
    data: bytes
    last: bool


STARTER = -2
"""In the place of a rank, and of a local one: a starter. The scenario's check is -1."""
PYTHON = "{python}"
"""As a word of a starter's argv: the Python of the node."""


class WorkerStart(NamedTuple):
    """What one worker, or starter, is started with."""

    rank: int
    local_rank: int
    env: dict[str, str]
    argv: list[str]
    """The script, relative to the folder that was shipped, and its arguments; of a starter, a program and its."""
    script: str = ""
    """Path of the script where `argv[0]` is not that."""
    stdin: str = NOTHING
    """What it reads: one of the words above, such as `FED`."""
    attempt: str = ""
    """Which workers it meets, see `FromRank`."""
    modules: tuple[str, ...] = ()
    """Of a starter: what the Python of the node must have."""
    triggers: tuple[dict[str, Any], ...] = ()
    """The points at which it is held: those of `Prepare` that are its own. With `sidecar`, FEATURE.MODULE, a
    process of that module stands beside it instead."""


class WorkerSettings(NamedTuple):
    """What all workers of a run on one node have in common."""

    folder: str
    """Where they work."""
    import_root: str
    packages: str = ""
    """The virtual environment that they use; empty: none."""
    trace: bool = False
    """Whether their calls are recorded."""
    trace_values: Optional[int] = None
    step: bool = False
    """Whether they are held before each call."""
    cold: bool = False
    """Whether each is an interpreter of its own."""


class Launch(NamedTuple):
    """What the children of a launcher's process need to know to become workers."""

    settings: WorkerSettings
    workers: tuple[WorkerStart, ...]
    """Those that are planned; none: the launcher decides."""
    triggers: tuple[dict[str, Any], ...]
    socket: str
    """Where the agent listens to the launcher's process."""
    home: str
    environment: dict[str, str]
    """What a worker has instead of variables of its launcher."""


class Store(NamedTuple):
    """The rendezvous store that the first node starts before any worker."""

    address: str
    port: int
    world_size: int


STUCK_S = 0.5
"""Data that nobody acknowledged for so long, though it was sent again and again, does not get through,"""
BLINK_S = 0.2
"""So long a kernel waits at least before it sends data again that nobody acknowledged."""
LONG_WAYS = 4
"""if that is so many round trips."""


class Connections(NodeEvent):
    """What the kernel of a node says of its TCP connections to one other node, taken together."""

    peer: str = ""
    """The other node: its address as an agent says it, its name in the record."""
    number: int = 0
    """How many connections there are."""
    unacknowledged_bytes: int = 0
    """What was sent, and the other kernel has not said to have."""
    silent_s: float = 0.0
    """For at least so long the other kernel has not answered though data was sent again and again; of several
    connections the longest."""
    sent_again: int = 0
    """Segments that were sent again, since the connections were made."""
    segments_out: int = 0
    segments_in: int = 0
    """All that were sent and that came, with those that were sent again."""
    acknowledged_bytes: int = 0
    """What was sent and has arrived, since the connections were made."""
    round_trip_s: float = 0.0
    """The smoothed round trip time of the one that has carried most; 0: not known."""
    rate_bytes_per_s: float = 0.0
    """The largest rate at which data was last delivered by one of them; 0: not known."""
    most_bytes: int = 0
    """What the one that has carried most has carried,"""
    busy_s: float = 0.0
    """for how long it had something on its way,"""
    reader_late_s: float = 0.0
    """and for how long of that the other end had no room, because its process did not read."""
    answers: Optional[bool] = None
    """Whether the other kernel answered when it was asked for a connection; None: it was not asked."""

    @property
    def stuck(self) -> bool:
        """Whether nothing gets through, or nothing comes back: not where the way is only long."""
        return self.silent_s >= max(STUCK_S, LONG_WAYS * self.round_trip_s)


class ThreadRaised(FromRank):
    """A thread of a script, not its main one, ended by an error that nobody caught."""

    thread: str = ""
    """Its name."""
    error: str = ""
    at: str = ""
    """The innermost line of the script's folder, `file:line`; empty where it was in none."""


EVERY_RANK = -1
"""In the place of a rank."""
RUN_ON = 1 << 62
"""In the place of a call's index: it is not held any more."""


class Follow(OfRun):
    """From the lab: asks for traces as soon as they are written, before the workers are prepared."""

    step: bool = False
    """Whether each worker is held before each call that is recorded."""


PROTOCOL = 13
"""Version of what is said here. A client and an agent of different versions part at once, with a sentence."""


# -- from the lab to an agent
class Hello(Message):
    """Asks whether the agent is ready."""

    version: int = PROTOCOL


class Claim(OfRun):
    """Asks for the node, for one run."""

    owner: str
    """Whose run it is; told to others who ask."""
    lease_s: float
    """Seconds of silence after which the agent ends the run."""
    uid: Optional[int] = None
    gid: Optional[int] = None
    """Who the workers in a container are; None: each rank of a node is a user of its own."""
    first_uid: int = FIRST_UID
    """Who the first of them is, then; the others follow."""
    cold: bool = False
    trace: bool = False
    """Whether calls are recorded."""
    trace_values: Optional[int] = None
    """How many elements of a tensor are recorded; None: the recorder's default."""
    output_bytes: int = OUTPUT_BYTES
    """What each rank may print."""
    version: int = PROTOCOL


class Files(OfRun):
    """A piece of the compressed tar of the scenario's folder."""

    data: bytes
    last: bool
    for_check: bool = False
    """Whether it is what the check of the scenario gets instead; no rank ever sees that."""


class Prepare(OfRun):
    """Asks for workers that wait at their gate, or for starters that do; again in mid-run, for more of them."""

    workers: tuple[WorkerStart, ...]
    store: Optional[Store] = None
    emptied: str = ""
    """A folder to empty before."""
    starters: tuple[WorkerStart, ...] = ()
    """Where there are any, the workers are those that they start, with what is said of each as the rest of its
    variables."""
    triggers: tuple[dict[str, Any], ...] = ()
    """The points at which ranks are held for a fault, each with its index in the plan as `trigger`, whether it `heals`,
    a `rank` where that is said, and `op` or `phase`, with `count` and `edge`, or `note`."""


class Go(OfRun):
    """Lets the workers run."""


class Ping(OfRun):
    """Says that the client is still there."""


class Stop(OfRun):
    """Asks for an end of all workers: SIGTERM, or SIGKILL where `hard`."""

    hard: bool


class Stacks(OfRun):
    """Asks where the workers are."""


CHECK = -1
"""In the place of a rank: the scenario's own check."""
FILES_IN = "files in "
"""How a limit is called that a folder of a node has; the folder follows."""


class Check(OfRun):
    """Asks for the scenario's own check of the results."""

    reference: str
    """`file.py:function`."""
    results: list[dict[str, Any]]
    """Of all ranks, as in `result.json`."""
    env: dict[str, str]


class Finish(OfRun):
    """Asks the agent to leave nothing of the run; where it made files that are wanted, not before they were fetched."""

    outputs: Optional[tuple[str, ...]] = None
    """Patterns that name the files that are wanted; empty: all that the run made; None: none."""
    outputs_bytes: int = 0
    """More than this is not fetched."""
    shared: str = ""
    """A folder beside the one that was shipped whose files are wanted too."""


# -- from an agent to the lab
class Ready(Message):
    """The answer to hello."""

    node: str
    torch: str
    """Its version."""
    version: int = PROTOCOL
    idle_s: float = 0.0
    """Seconds since it last heard of a run, or since it started; 0 while it has one."""


class Claimed(OfRun):
    """The node takes part in the run."""

    time: float
    boot: str
    """Identity of the node's clock, see `clock_id`."""


class Busy(OfRun):
    """Another run has the node."""

    holder: str
    """The run that has it."""
    owner: str
    age_s: float


class Refused(OfRun):
    """A message was not acted on."""

    what: str
    """Kind of that message; `node` where the node is none for any run, `run` where the agent gave the whole run up."""
    reason: str


class Prepared(OfRun):
    """The workers wait at their gate, and the store listens."""


class Output(OfRank):
    """Something that a worker, or starter, printed."""

    stream: int
    """1: standard output, 2: standard error, 3: the terminal that it has, 4: its answers to whoever calls it."""
    time: float
    data: bytes
    attempt: str = ""


class Trace(OfRank):
    """Whole lines that a worker's recorder wrote."""

    data: bytes
    attempt: str = ""


class Cleaning(OfRun):
    """Processes of the run are still being ended, or its files removed."""


class Finished(OfRun):
    """Nothing of the run is left in the node."""


# -- from an agent to the lab, and unchanged into the events of the record; the defaults are for damaged ones
class Limited(NodeEvent):
    """A limit was reached by a rank, or where there is none by a node; of several about the same, the last counts."""

    rank: Optional[int] = None
    what: str = "output"
    """`output`, `notes` or a kind of `trace` of a rank, in bytes; `disk`; `processes`, `memory` or `files in FOLDER` of
    a node."""
    limit: int = 0
    excess: int = 0
    """How much was dropped or written, 0 where that is not known; how often something was refused or killed."""
    attempt: str = ""


class Started(FromRank):
    """A worker was let go."""

    pid: int = 0


class Stack(FromRank):
    """Where a worker is."""

    text: str = ""


class Halted(FromRank):
    """A signal stopped a worker, or let it go on."""

    signal: str = ""
    """What stopped it; empty: it goes on."""


class Exited(FromRank):
    """A worker ended."""

    code: Optional[int] = None
    """None where a signal killed it."""
    signal: Optional[str] = None
    out_of_memory: bool = False
    stopped: bool = False
    """Whether the lab, or its starter, had stopped it."""
    error: str = ""
    """What it raised."""
    traceback: str = ""
    raised: Optional[float] = None
    """When it raised; earlier than when it ended."""
    stack: str = ""
    """What faulthandler wrote when a signal killed it."""
    memory_bytes: Optional[int] = None
    """What it held when the agent killed it because memory ran out."""


class Note(FromRank):
    """A value that a script stated with `lab.note`; goes on to the lab and into the record."""

    name: str = "?"
    value: Any = None


class Raised(FromRank):
    """What ended a script."""

    error: str = ""
    traceback: str = ""


class Launched(FromRank):
    """A process that a starter started became a worker; its descriptors come with this."""

    local_rank: int = 0
    pid: int = 0
    """Of the worker; who sends this is its parent."""
    channels: tuple[str, ...] = ()
    """The names of the descriptors, see `channels`; `status` has its wait statuses."""


class Imported(FromRank):
    """Slow parts of torch that a script had to import itself."""

    names: tuple[str, ...] = ()


Statement = Union[Note, Named, Raised, Imported, Breakpoint, Continued, Joining, Leaving, Reached, ThreadRaised,
                  Launched]  # fmt: skip
