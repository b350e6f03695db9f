"""Every message between the lab and an agent; `wire` encodes and decodes them, and those of `worker`.

NamedTuples whose annotations are evaluated take 0.08 ms each to define, frozen dataclasses 0.45 ms.
"""

from typing import Any, NamedTuple, Optional, Union

from ..config import FIRST_UID, OUTPUT_BYTES
from .backend import Named
from .checked import Staged
from .clock import AskTime, TimeTold
from .fault import Do, Done, LookAt, Reached, Release, Undo
from .joined import Joined, LeftRunning
from .output import Fetch, Made, Piece
from .start import Store, WorkerStart
from .tcp import Connections
from .terminal import Breakpoint, Continued, Grant, Input, Taken, Window
from .thread import ThreadRaised
from .watch import Follow, LetGo

PROTOCOL = 11
"""Version of what is said here. A client and an agent of different versions part at once, with a sentence."""


# -- from the lab to an agent
class Hello(NamedTuple):
    """Asks whether the agent is ready."""

    version: int = PROTOCOL


class Claim(NamedTuple):
    """Asks for the node, for one run."""

    run: str
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


class Files(NamedTuple):
    """A piece of the compressed tar of the scenario's folder."""

    run: str
    data: bytes
    last: bool
    for_check: bool = False
    """Whether it is what the check of the scenario gets instead; no rank ever sees that."""


class Prepare(NamedTuple):
    """Asks for workers that wait at their gate, or for starters that do; again in mid-run, for more of them."""

    run: str
    workers: tuple[WorkerStart, ...]
    store: Optional[Store] = None
    emptied: str = ""
    """A folder to empty before."""
    starters: tuple[WorkerStart, ...] = ()
    """Where there are any, the workers are those that they start, with what is said of each as the rest of its
    variables."""
    at_once: int = 0
    """So many workers the starters may have at a time; their local ranks are below it."""
    triggers: tuple[dict[str, Any], ...] = ()
    """The points at which ranks are held for a fault, each with its index in the plan as `trigger`, whether it `heals`,
    a `rank` where that is said, and `op` or `phase`, with `count` and `edge`, or `note`."""


class Go(NamedTuple):
    """Lets the workers run."""

    run: str


class Ping(NamedTuple):
    """Says that the client is still there."""

    run: str


class Stop(NamedTuple):
    """Asks for an end of all workers: SIGTERM, or SIGKILL where `hard`."""

    run: str
    hard: bool


class Stacks(NamedTuple):
    """Asks where the workers are."""

    run: str


CHECK = -1
"""In the place of a rank: the scenario's own check."""
FILES_IN = "files in "
"""How a limit is called that a folder of a node has; the folder follows."""


class Check(NamedTuple):
    """Asks for the scenario's own check of the results."""

    run: str
    reference: str
    """`file.py:function`."""
    results: list[dict[str, Any]]
    """Of all ranks, as in `result.json`."""
    env: dict[str, str]


class Finish(NamedTuple):
    """Asks the agent to leave nothing of the run; where it made files that are wanted, not before they were fetched."""

    run: str
    outputs: Optional[tuple[str, ...]] = None
    """Patterns that name the files that are wanted; empty: all that the run made; None: none."""
    outputs_bytes: int = 0
    """More than this is not fetched."""
    shared: str = ""
    """A folder beside the one that was shipped whose files are wanted too."""


# -- from an agent to the lab
class Ready(NamedTuple):
    """The answer to hello."""

    node: str
    torch: str
    """Its version."""
    version: int = PROTOCOL
    idle_s: float = 0.0
    """Seconds since it last heard of a run, or since it started; 0 while it has one."""


class Claimed(NamedTuple):
    """The node takes part in the run."""

    run: str
    time: float
    boot: str
    """Identity of the node's clock, see `clock_id`."""


class Busy(NamedTuple):
    """Another run has the node."""

    run: str
    holder: str
    """The run that has it."""
    owner: str
    age_s: float


class Refused(NamedTuple):
    """A message was not acted on."""

    run: str
    what: str
    """Kind of that message; `node` where the node is none for any run, `run` where the agent gave the whole run up."""
    reason: str


class Prepared(NamedTuple):
    """The workers wait at their gate, and the store listens."""

    run: str


class Output(NamedTuple):
    """Something that a worker, or starter, printed."""

    run: str
    rank: int
    stream: int
    """1: standard output, 2: standard error, 3: the terminal that it has, 4: its answers to whoever calls it."""
    time: float
    data: bytes
    attempt: str = ""


class Trace(NamedTuple):
    """Whole lines that a worker's recorder wrote."""

    run: str
    rank: int
    data: bytes
    attempt: str = ""


class Cleaning(NamedTuple):
    """Processes of the run are still being ended, or its files removed."""

    run: str


class Finished(NamedTuple):
    """Nothing of the run is left in the node."""

    run: str


# -- from an agent to the lab, and unchanged into the events of the record; the defaults are for damaged ones
class Limited(NamedTuple):
    """A limit was reached by a rank, or where there is none by a node; of several about the same, the last counts."""

    time: float
    node: str = ""
    run: str = ""
    rank: Optional[int] = None
    what: str = "output"
    """`output`, `notes` or a kind of `trace` of a rank, in bytes; `disk`; `processes`, `memory` or `files in FOLDER` of
    a node."""
    limit: int = 0
    excess: int = 0
    """How much was dropped or written, 0 where that is not known; how often something was refused or killed."""
    attempt: str = ""


class Started(NamedTuple):
    """A worker was let go."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
    pid: int = 0
    attempt: str = ""
    """The workers of a run that meet one another have the same; empty where the launcher knows one attempt only."""


class Stack(NamedTuple):
    """Where a worker is."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
    text: str = ""
    attempt: str = ""


class Halted(NamedTuple):
    """A signal stopped a worker, or let it go on."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
    signal: str = ""
    """What stopped it; empty: it goes on."""
    attempt: str = ""


class Exited(NamedTuple):
    """A worker ended."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
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
    attempt: str = ""


class Note(NamedTuple):
    """A value that a script stated with `lab.note`; goes on to the lab and into the record."""

    rank: int
    time: float
    name: str = "?"
    value: Any = None
    node: str = ""
    run: str = ""
    attempt: str = ""


Request = Union[Hello, Claim, Files, Follow, Prepare, Go, LetGo, Input, Grant, Window, Ping, Stop, Stacks, Check,
                Finish, Fetch, Do, Undo, LookAt, Release, AskTime]  # fmt: skip
Answer = Union[Ready, Claimed, Busy, Refused, Prepared, Started, Output, Trace, Note, Named, Stack, Halted, Exited,
               Limited, Cleaning, Made, Piece, Taken, Breakpoint, Continued, Joined, LeftRunning, Finished,
               Done, Reached, Connections, TimeTold, ThreadRaised, Staged]  # fmt: skip
