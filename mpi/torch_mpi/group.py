"""The process group that `torch.distributed` calls: has what it is asked for checked, and done in order."""

# ruff: noqa: D102 - methods that override PyTorch's are documented there
# ruff: noqa: N815 - and named by it
# mypy: disable-error-code="override"
# torch's stubs have each method twice, for lists of tensors with options and for single ones without.

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch._C._distributed_c10d import (
    AllreduceOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from torch.distributed import DistBackendError

from torch_mpi import arguments, collectives, lifetime, monitored, names, profiled
from torch_mpi.buffers import Tensors, as_bytes, checked, put_back, to_read, to_write
from torch_mpi.callqueue import CallQueue
from torch_mpi.identity import Identity
from torch_mpi.library import MPI
from torch_mpi.limits import Impatient, Limit, TimeUp
from torch_mpi.one_machine import OneMachine
from torch_mpi.reductions import Reduction, name_of, reduction_of
from torch_mpi.works import DoneWork, FromAny, MessageWork, QueuedWork, reason_of

Action = Callable[[MPI.Intracomm], None]
"""Does a call by this communicator."""
Method = TypeVar("Method", bound=Callable[..., Any])


def _told(method: Method) -> Method:
    """Have what is wrong with the arguments of a call name the call, the rank and the group."""

    @functools.wraps(method)
    def call(self: ProcessGroupMPI, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise type(error)(f"{self._what(names.CALLS[method.__name__])}: {error}") from None

    return call  # type: ignore[return-value]  # with the signature of the method


class ProcessGroupMPI(Identity):
    """Ranks that call each other through MPI: an MPI communicator of its own."""

    @classmethod
    def create(cls, ranks: Sequence[int], timeout: timedelta | None = None) -> ProcessGroupMPI | None:
        """Make a group of these ranks of the world, in this order; of all where there are none.

        All members have to call it, nobody else. A process that is not in the group gets None.

        Args:
            ranks: of the world.
            timeout: how long a call may take; half an hour if nobody says. Making the group has no limit.
        """
        world, limit = lifetime.start(), Limit(timeout)
        return cls._of(world, ranks, limit) if ranks else cls(world.Dup(), limit)

    @classmethod
    def _of(cls, comm: MPI.Intracomm, ranks: Sequence[int], limit: Limit) -> ProcessGroupMPI | None:
        everybody = comm.Get_group()
        members = everybody.Incl(list(ranks))
        try:
            # Not Comm.Create, for which all ranks of the communicator would have to call it.
            return cls(comm.Create_group(members), limit) if members.rank != MPI.UNDEFINED else None
        finally:
            members.Free()
            everybody.Free()

    def __init__(self, comm: MPI.Intracomm, limit: Limit) -> None:
        super().__init__(int(comm.rank), int(comm.size), limit)
        comm.Set_errhandler(MPI.ERRORS_RETURN)  # which mpi4py makes exceptions of
        self._comm = comm
        self._impatient = cast("MPI.Intracomm", Impatient(comm, limit))
        self._machine = OneMachine(comm, limit)
        self._queue = CallQueue("mpi-calls")
        self._given_up = ""
        """The call that was not done in time, if there was one: nothing can be done in this group any more."""
        self._collectives = 0
        lifetime.open_groups.add(self)

    # -- collectives

    @_told
    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None, *, op: Any = None) -> Any:
        tensors, opts = arguments.listed(tensors), arguments.options(AllreduceOptions, opts, op=op)
        return self._all_reduce("all_reduce", tensors, opts)

    @_told
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        return self._all_reduce("all_reduce_coalesced", tensors, arguments.options(AllreduceOptions, opts))

    def _all_reduce(self, call: str, tensors: Tensors, opts: Any) -> Any:
        machine = self._machine
        each = [(tensor, self._how(tensor, opts)) for tensor in tensors]

        def action(comm: MPI.Intracomm) -> None:
            for tensor, how in each:
                if how is None:
                    collectives.all_reduce_sparse(comm, tensor)
                else:
                    collectives.all_reduce(comm, tensor, how, machine)

        return self._do(call, action, tensors, opts)

    def _how(self, tensor: torch.Tensor, opts: Any) -> Reduction | None:
        """How to reduce a tensor; None: it is sparse."""
        op = name_of(opts.reduceOp)
        if checked(tensor, sparse=True).layout is torch.strided:
            return reduction_of(op, tensor.dtype)
        if op != "SUM":
            raise ValueError(f"sparse tensors can be summed only, found {op}")
        return None

    @_told
    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None, *, root: int | None = None) -> Any:
        (tensor,), opts = (
            arguments.dense(arguments.listed(tensors)),
            arguments.options(BroadcastOptions, opts, root=root),
        )
        source = arguments.member(opts.rootRank, self._size)
        return self._do("broadcast", lambda comm: collectives.broadcast(comm, tensor, source), [tensor], opts)

    @_told
    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, *, root: int | None = None
    ) -> Any:
        (tensor,), opts = (
            arguments.dense(arguments.listed(tensors)),
            arguments.options(ReduceOptions, opts, root=root, op=op),
        )
        target, how = (
            arguments.member(opts.rootRank, self._size),
            reduction_of(name_of(opts.reduceOp), tensor.dtype),
        )
        return self._do("reduce", lambda comm: collectives.reduce(comm, tensor, how, target), [tensor], opts)

    @_told
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        (tensor,) = arguments.dense(arguments.listed(inputs))
        given = self._one_each(arguments.first_list(outputs), tensor)
        return self._do("all_gather", lambda comm: collectives.all_gather(comm, given, tensor), given, opts, [tensor])

    @_told
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        arguments.check_count(outputs, self._size, "lists of output tensors")
        lists = [self._one_each([each[place] for each in outputs], tensor) for place, tensor in enumerate(inputs)]
        tensors = arguments.dense(inputs)

        def action(comm: MPI.Intracomm) -> None:
            for given, tensor in zip(lists, tensors, strict=True):
                collectives.all_gather(comm, given, tensor)

        return self._do(
            "all_gather_coalesced", action, [tensor for given in outputs for tensor in given], opts, tensors
        )

    @_told
    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self._all_gather_single("all_gather_into_tensor", [output], [tensor], opts)

    @_told
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        return self._all_gather_single("all_gather_into_tensor_coalesced", outputs, inputs, opts)

    def _all_gather_single(self, call: str, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        pairs = list(zip(arguments.dense(outputs), arguments.dense(inputs), strict=True))
        for output, tensor in pairs:
            arguments.check_whole(self._size, whole=output, part=tensor)

        def action(comm: MPI.Intracomm) -> None:
            for output, tensor in pairs:
                collectives.all_gather_single(comm, output, tensor)

        return self._do(call, action, outputs, opts, inputs)

    @_told
    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, root: int | None = None
    ) -> Any:
        (tensor,), opts = arguments.dense(arguments.listed(inputs)), arguments.options(GatherOptions, opts, root=root)
        target, given = arguments.member(opts.rootRank, self._size), arguments.first_list(outputs)
        if self._rank == target:
            self._one_each(given, tensor)
        return self._do("gather", lambda comm: collectives.gather(comm, given, tensor, target), given, opts, [tensor])

    @_told
    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, root: int | None = None
    ) -> Any:
        (output,), opts = arguments.dense(arguments.listed(outputs)), arguments.options(ScatterOptions, opts, root=root)
        source, given = arguments.member(opts.rootRank, self._size), arguments.first_list(inputs)
        if self._rank == source:
            self._one_each(given, output)
        return self._do("scatter", lambda comm: collectives.scatter(comm, output, given, source), [output], opts, given)

    @_told
    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, *, op: Any = None
    ) -> Any:
        (output,), opts = (
            arguments.dense(arguments.listed(outputs)),
            arguments.options(ReduceScatterOptions, opts, op=op),
        )
        given, how = (
            self._one_each(arguments.first_list(inputs), output),
            reduction_of(name_of(opts.reduceOp), output.dtype),
        )
        return self._do(
            "reduce_scatter", lambda comm: collectives.reduce_scatter(comm, output, given, how), [output], opts, given
        )

    @_told
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self._reduce_scatter_single("reduce_scatter_tensor", [output], [tensor], opts)

    @_told
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        return self._reduce_scatter_single("reduce_scatter_tensor_coalesced", outputs, inputs, opts)

    def _reduce_scatter_single(self, call: str, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        opts = arguments.options(ReduceScatterOptions, opts)
        pairs = list(zip(arguments.dense(outputs), arguments.dense(inputs), strict=True))
        for output, tensor in pairs:
            arguments.check_whole(self._size, whole=tensor, part=output)
        hows = [reduction_of(name_of(opts.reduceOp), output.dtype) for output in outputs]

        def action(comm: MPI.Intracomm) -> None:
            for (output, tensor), how in zip(pairs, hows, strict=True):
                collectives.reduce_scatter_single(comm, output, tensor, how)

        return self._do(call, action, outputs, opts, inputs)

    @_told
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        arguments.check_count(outputs, self._size, "output tensors")
        arguments.check_count(inputs, self._size, "input tensors")
        given, tensors = arguments.dense(outputs), arguments.dense(inputs)
        return self._do("all_to_all", lambda comm: collectives.all_to_all(comm, given, tensors), outputs, opts, tensors)

    @_told
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
    ) -> Any:
        rows_out = arguments.rows_of(checked(output), output_split_sizes, self._size, "output")
        rows_in = arguments.rows_of(checked(tensor), input_split_sizes, self._size, "input")
        return self._do(
            "all_to_all_single",
            lambda comm: collectives.all_to_all_single(comm, output, tensor, rows_out, rows_in),
            [output],
            opts,
            [tensor],
        )

    @_told
    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        return self._do("barrier", lambda comm: comm.Barrier(), [], opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier that says who is missing; `torch.distributed.monitored_barrier` itself lets gloo alone do it."""
        monitored.barrier(self._comm, self._what("monitored_barrier"), timeout, wait_all_ranks=wait_all_ranks)

    monitoredBarrier = monitored_barrier

    # -- messages

    @_told
    def send(self, tensors: Tensors, destination: int, tag: int = 0) -> MessageWork:
        (tensor,) = arguments.dense(arguments.listed(tensors))
        data = to_read(tensor)

        def sent(_: MPI.Status, kept: torch.Tensor = data) -> None:
            """Nothing is left to do; until now the memory had to stay."""

        peer = arguments.member(destination, self._size)
        return self._message(
            "send", f"send to {peer}", tensor, lambda: self._comm.Isend(as_bytes(data), peer, tag), sent
        )

    @_told
    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> MessageWork:
        return self._receive(f"recv from {source}", tensors, arguments.member(source, self._size), tag)

    @_told
    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> MessageWork:
        return self._receive("recv from any rank", tensors, MPI.ANY_SOURCE, tag)

    recvAnysource = recv_anysource

    def _receive(self, what: str, tensors: Tensors, source: int, tag: int) -> MessageWork:
        (tensor,) = arguments.dense(arguments.listed(tensors))
        room = to_write(tensor)

        def arrived(status: MPI.Status) -> None:
            found = status.Get_count(MPI.BYTE)
            if found != room.nbytes:
                sender = status.Get_source()
                raise ValueError(f"takes {room.nbytes} bytes, and {found} came from rank {sender} of the group")
            put_back(tensor, room)

        if source == MPI.ANY_SOURCE:
            return self._message("recvAnySource", what, tensor, lambda: FromAny(self._comm, room, tag), arrived)
        return self._message("recv", what, tensor, lambda: self._comm.Irecv(as_bytes(room), source, tag), arrived)

    def _message(
        self,
        title: str,
        what: str,
        tensor: torch.Tensor,
        begin: Callable[[], MPI.Request | FromAny],
        arrived: Callable[[MPI.Status], None],
    ) -> MessageWork:
        event = profiled.begin(title, [tensor])

        def over(status: MPI.Status) -> None:
            if event is not None:
                profiled.end_message(event)
            arrived(status)

        try:
            return MessageWork(self._what(what), tensor, begin(), over, self._limit)
        except MPI.Exception as error:
            raise DistBackendError(f"{self._what(what)}: {reason_of(error)}") from error

    # -- other groups, and the end

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> ProcessGroupMPI | None:
        """A group of some of this group's ranks; all of those have to call it."""
        made = ProcessGroupMPI._of(self._comm, new_ranks, Limit(timeout) if timeout else self._limit)
        if made is not None:
            made.setGroupName(group_name or f"{self._name}:split:{','.join(map(str, new_ranks))}")
            made.setGroupDesc(group_desc or "")
        return made

    splitGroup = split_group

    def shutdown(self) -> None:
        """Wait for the calls under way, and give the communicator back; torch calls this at `destroy_process_group`."""
        self._queue.close()
        lifetime.open_groups.discard(self)
        if self._given_up:
            return  # the communicator is in use, and the others may never come
        if self._comm != MPI.COMM_NULL and not MPI.Is_finalized():
            self._machine.close()
            self._comm.Free()

    def abort(self) -> None:
        """End every rank of the world."""
        self._comm.Abort(1)

    # -- how calls are done, and what is right

    def _what(self, call: str) -> str:
        return f"mpi: {call} on rank {self._rank} of group {self._name or 'default_pg'!r}"

    def _do(self, call: str, action: Action, result: Tensors, opts: Any, taken: Tensors | None = None) -> Any:
        """Do it now if the caller waits and nothing is under way, else after all that was called before.

        `taken` are the tensors that it takes, where these are not those that it fills.
        """
        self._collectives += 1
        given = list(result)
        event = profiled.begin(call, given if taken is None else taken)
        if event is None and opts is not None and not opts.asyncOp:
            try:
                if self._queue.do_now(lambda: self._attempt(call, action)):
                    return DoneWork(call, given)
            except Exception as error:
                raise DistBackendError(f"{self._what(call)}: {reason_of(error)}") from error
        work = QueuedWork(self._what(call), given)

        def attempt() -> None:
            try:
                self._attempt(call, action)
            except Exception as error:  # whoever waits for the call is told
                work.fail(error)
            if event is not None:
                profiled.end(event)

        self._queue.put(attempt, work.finish)
        return work

    def _attempt(self, call: str, action: Action) -> None:
        if self._given_up:
            raise RuntimeError(f"nothing more can be done here since {self._given_up} timed out")
        try:
            action(self._impatient)
        except TimeUp:
            self._given_up = call
            raise

    def _one_each(self, tensors: Tensors, mine: torch.Tensor) -> Tensors:
        return arguments.one_each(tensors, mine, self._rank, self._size)

    def _get_sequence_number_for_group(self) -> int:
        return self._collectives


for _newer, _older in names.OLDER.items():  # what torch before 2.13 calls, and what of torch 2.13 has kept these names
    setattr(ProcessGroupMPI, _older, getattr(ProcessGroupMPI, _newer))
