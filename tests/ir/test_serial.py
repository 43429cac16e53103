from __future__ import annotations

import hashlib
import math
import mmap
import struct
from dataclasses import replace

import pytest
from graphs import any_graphs, is_same
from hypothesis import given
from hypothesis import strategies as st
from op_examples import example_node

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import BufferSpec, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.ir.serial import HASHED_FROM, HEADER, RECORDS, ROLES, SECTIONS, from_bytes, to_bytes


def fix_checksum(data: bytes | bytearray) -> bytes:
    """Correct the checksum, so that the data after it is read."""
    return data[: HASHED_FROM - 32] + hashlib.sha256(data[HASHED_FROM:]).digest() + data[HASHED_FROM:]


def offset_of(data: bytes, section: str) -> int:
    index = HEADER.itemsize
    for name in SECTIONS:
        if name == section:
            return index
        count = struct.unpack_from("<I", data, HEADER.fields[name][1])[0]
        index += -(-count * RECORDS[name].itemsize // 8) * 8
    raise KeyError(section)


GRAPH = example_node(Op.FLASH_ATTN)
GOOD = to_bytes(GRAPH)


@pytest.mark.parametrize("op", list(OPS))
def test_every_opcode_round_trips(op):
    assert is_same(from_bytes(to_bytes(example_node(op))), example_node(op))


@given(any_graphs())
def test_any_graph_round_trips(graph):
    assert is_same(from_bytes(to_bytes(graph)), graph)


def test_role_numbers_match_the_doc():
    assert ROLES == ("weight", "constant", "state", "step", "activation", "output", "table")


def test_same_graph_has_the_same_bytes():
    assert to_bytes(from_bytes(GOOD)) == GOOD


def test_float_keeps_every_bit():
    for bits in (0x7FF8000000000001, 0x8000000000000000, 1, 0x7FF0000000000000):
        (value,) = struct.unpack("<d", struct.pack("<Q", bits))
        graph = replace(GRAPH, nodes=(replace(GRAPH.nodes[0], attrs={"scale": value}),))
        back = from_bytes(to_bytes(graph)).nodes[0].attrs["scale"]
        assert struct.pack("<d", back) == struct.pack("<d", value)
    assert math.isinf(back)


def test_saved_graph_is_read_in_place(tmp_path):
    (tmp_path / "graph.zir").write_bytes(to_bytes(GRAPH))
    with (tmp_path / "graph.zir").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert is_same(from_bytes(mapped), GRAPH)
        mapped.close()  # nothing of it is kept


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes; expected at least the header's 88"),
        (GOOD[:87], "87 bytes; expected at least the header's 88"),
        (b"GGUF" + GOOD[4:], "magic is b'GGUF'"),
        (GOOD[:4] + b"\2" + GOOD[5:], "version is 2; this build reads 1"),
        (GOOD[:-8], "the header states"),
        (GOOD + b"\0" * 8, "the header states"),
        (GOOD[:100] + bytes([GOOD[100] ^ 1]) + GOOD[101:], "checksum does not match"),
        (GOOD[:20] + bytes([GOOD[20] ^ 1]) + GOOD[21:], "checksum does not match"),
    ],
)
def test_damaged_file_is_rejected(data, message):
    with pytest.raises(InputError, match=message):
        from_bytes(data)


def patch_field(section: str, offset: int, value: int, size: str = "<I") -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(size, data, offset_of(GOOD, section) + offset, value)
    return fix_checksum(data)


def repeat_field(section: str, field_of_record: str) -> bytes:
    """Copy a field from the first record of a section to the second."""
    record = RECORDS[section]
    offset = record.fields[field_of_record][1]
    first = struct.unpack_from("<I", GOOD, offset_of(GOOD, section) + offset)[0]
    return patch_field(section, record.itemsize + offset, first)


def patch_header(field: str, value: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into("<I", data, HEADER.fields[field][1], value)
    return fix_checksum(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (patch_header("reserved", 1), "reserved header field is 1"),
        (patch_header("stage", 3), "stage 3 is out of range: there are 3"),
        (patch_header("name", 10**6), "string 1000000 is out of range"),
        (patch_header("nodes", 2), "has records for"),
        (patch_field("buffers", 0, 999), "string 999 is out of range"),
        (patch_field("buffers", 8, 7), "role 7 is out of range: there are 7"),
        (patch_field("buffers", 12, 999), "dims 999 to 1001"),
        (patch_field("nodes", 0, 200), "opcode 200 is unknown"),
        (patch_field("nodes", 16, 0xFFFFFFFF), "operands 0 to 4294967296 are out of range"),
        (patch_field("operands", 0, 77), "buffer 77 is out of range"),
        (patch_field("attrs", 4, 9), "attribute of kind 9"),
        (repeat_field("attrs", "name"), "attribute heads appears twice"),
        (patch_field("dims", 0, 2), "dimension of kind 2"),
        (patch_field("dims", 4, 1), "reserved 1"),
        (patch_field("dims", 24, 2**63, "<Q"), "value 9223372036854775808"),
        (patch_field("strings", 0, 10**6), "string 0 begins at 0 and ends at 1000000"),
        (patch_field("strings", 4, 0), r"string 1 begins at \d+ and ends at 0"),
        (patch_field("text", 0, 0xFF, "<B"), "string 0 is not UTF-8"),
        (repeat_field("buffers", "name"), "buffer in.q appears twice"),
    ],
)
def test_contradictory_file_is_rejected(data, message):
    with pytest.raises(InputError, match=message):
        from_bytes(data)


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bits_never_crash_the_reader(flips):
    data = bytearray(GOOD)
    for index, mask in flips:
        data[index] ^= mask
    if bytes(data) != GOOD:
        with pytest.raises(InputError):
            from_bytes(data)
    try:
        graph = from_bytes(fix_checksum(data))
    except InputError:
        return
    assert isinstance(graph, OpGraph)


@given(st.integers(0, len(GOOD) - 1))
def test_truncated_file_is_rejected(size):
    with pytest.raises(InputError):
        from_bytes(GOOD[:size])


@pytest.mark.parametrize(
    "graph",
    [
        replace(GRAPH, stage="later"),
        replace(GRAPH, nodes=(Node(Op.BARRIER, ("act.nowhere",), ()),)),
        replace(GRAPH, nodes=(Node(Op.BARRIER, (), (), {"n": 2**63}),)),
        replace(GRAPH, nodes=(Node(Op.BARRIER, (), (), {"n": b"raw"}),)),  # type: ignore[dict-item]
        replace(GRAPH, nodes=(Node(Op.BARRIER, (), (), {}, -1),)),
        replace(GRAPH, nodes=(Node(Op.BARRIER, (), (), {}, None, "\ud800"),)),
        replace(GRAPH, nodes=(Node(99, (), ()),)),  # type: ignore[arg-type]
        replace(GRAPH, buffers={"a": BufferSpec("a", (-1,), "f32", "state")}),
        replace(GRAPH, buffers={"b": BufferSpec("a", (1,), "f32", "state")}),
        replace(GRAPH, buffers={"a": BufferSpec("a", (1,), "f32", "scratch")}),  # type: ignore[arg-type]
    ],
)
def test_unrepresentable_graph_is_rejected_when_writing(graph):
    with pytest.raises(InputError, match="cannot save"):
        to_bytes(graph)
