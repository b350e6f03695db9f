"""What a reader of Chakra execution traces does: the messages of its schema, made at run time, and files of them.

Names, numbers and types are those of `et_def.proto` (https://github.com/mlcommons/chakra); only kinds of values that no
trace here has are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

_PACKAGE = "ChakraProtoMsg"
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "uint64": _FIELD.TYPE_UINT64, "int64": _FIELD.TYPE_INT64, "uint32": _FIELD.TYPE_UINT32, "int32": _FIELD.TYPE_INT32,
    "bool": _FIELD.TYPE_BOOL, "string": _FIELD.TYPE_STRING, "double": _FIELD.TYPE_DOUBLE, "float": _FIELD.TYPE_FLOAT,
}  # fmt: skip
_MESSAGES = {
    "AttributeProto": (
        "string name = 1", "string doc_string = 2", "double double_val = 3", "float float_val = 5",
        "int32 int32_val = 7", "int64 int64_val = 9", "uint32 uint32_val = 11", "uint64 uint64_val = 13",
        "bool bool_val = 27", "string string_val = 29",
    ),
    "GlobalMetadata": ("string version = 1", "repeated AttributeProto attr = 2"),
    "IOInfo": ("string values = 1", "string shapes = 2", "string types = 3"),
    "Node": (
        "uint64 id = 1", "string name = 2", "NodeType type = 3", "repeated uint64 ctrl_deps = 4",
        "repeated uint64 data_deps = 5", "uint64 start_time_micros = 6", "uint64 duration_micros = 7",
        "IOInfo inputs = 8", "IOInfo outputs = 9", "repeated AttributeProto attr = 10",
    ),
}  # fmt: skip
NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
COLLECTIVES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=_PACKAGE, syntax="proto3")
    kinds = file.enum_type.add(name="NodeType")
    for number, name in enumerate(NODE_TYPES):
        kinds.value.add(name=name, number=number)
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        if name == "AttributeProto":
            described.oneof_decl.add(name="value")
        for line in fields:
            *label, kind, field, _, number = line.split()
            added = described.field.add(name=field, number=int(number))
            added.label = _FIELD.LABEL_REPEATED if label else _FIELD.LABEL_OPTIONAL
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type = _FIELD.TYPE_ENUM if kind == "NodeType" else _FIELD.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{kind}"
            if field.endswith("_val"):
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


CLASSES = _classes()


def read_trace_file(path: Path) -> tuple[Any, list[Any]]:
    """The metadata and the nodes of a file, which holds nothing else."""
    bodies = _bodies(path.read_bytes())
    metadata = CLASSES["GlobalMetadata"].FromString(next(bodies))
    return metadata, [CLASSES["Node"].FromString(body) for body in bodies]


def _bodies(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        size = shift = 0
        while True:
            byte = data[place]
            place += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        assert place + size <= len(data), "the file ends in a message"
        yield data[place : place + size]
        place += size


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}


def accept(metadata: Any, nodes: list[Any]) -> None:
    """What a simulator asks of a file: known kinds, each with its attributes, dependencies on earlier nodes only."""
    assert metadata.version == "0.0.4"
    assert [node.id for node in nodes] == sorted({node.id for node in nodes})
    known: set[int] = set()
    for node in nodes:
        assert not len(UnknownFieldSet(node))
        found, kind = attributes(node), NODE_TYPES[node.type]
        assert {*node.data_deps, *node.ctrl_deps} <= known
        assert found["is_cpu_op"] is False
        if kind == "COMP_NODE":
            assert node.duration_micros > 0
        elif kind == "COMM_COLL_NODE":
            assert COLLECTIVES[found["comm_type"]] in ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")
            assert found["comm_size"] > 0
            assert int(found.get("pg_name", "0")) >= 0
        else:
            assert kind in ("COMM_SEND_NODE", "COMM_RECV_NODE")
            assert found["comm_size"] > 0
            assert {"comm_src", "comm_dst", "comm_tag"} <= found.keys()
        known.add(node.id)
