"""emit/structured.py: what is written like C computes what C would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from llvmlite import ir

from zinc_rt.sim.shader.emit.helpers import KernelModule
from zinc_rt.sim.shader.emit.structured import RecordView, StructuredBuilder, define
from zinc_rt.sim.shader.emit.values import I1, I32, I64
from zinc_rt.sim.shader.layout import RecordBlock, RecordLayout
from zinc_rt.sim.shader.run.compile import LoadedCode, compile_ir

TABLE = RecordLayout("""
i64 balance
u32 count
u64 total
u8 small
u32 numbers 8
""")


def run_function(write: Callable[[StructuredBuilder, RecordView], None], table: RecordBlock) -> int:
    """Return the i64 result of the function for one TABLE."""
    module = KernelModule("test")
    b, (record,) = define(module, "tested", I64, table=TABLE)
    write(b, record)
    loaded = LoadedCode(compile_ir(str(module)), ["tested"])
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(loaded.at["tested"])(table.address))


@pytest.fixture
def record_table() -> RecordBlock:
    block = RecordBlock(TABLE)
    block.record["numbers"] = np.arange(10, 18)
    block["count"] = 8
    return block


def test_loop_continues_and_breaks_as_its_body_requests(record_table: RecordBlock) -> None:
    def write_body(b: StructuredBuilder, record: RecordView) -> None:
        total = b.variable(I64, 0)
        with b.count(record.count) as (index, turn):
            turn.continue_if(record.numbers[index] % 2 == 1)
            turn.break_if(record.numbers[index] == 16)
            total.value += record.numbers[index]
        b.give(total.value)

    assert run_function(write_body, record_table) == 10 + 12 + 14


@pytest.mark.parametrize("count", [0, 1])
def test_loop_with_zero_count_runs_no_iteration(record_table: RecordBlock, count: int) -> None:
    def write_body(b: StructuredBuilder, record: RecordView) -> None:
        turns = b.variable(I64, 0)
        with b.count(record.count):
            turns.value += 1
        b.give(turns.value)

    record_table["count"] = count
    assert run_function(write_body, record_table) == count


def test_i64_fields_compare_signed(record_table: RecordBlock) -> None:
    def write_body(b: StructuredBuilder, record: RecordView) -> None:
        with b.if_(record.balance <= 0):
            b.give(1)
        b.give(b.choose(record.total < 5, record.total, 5))

    record_table["balance"] = -3
    assert run_function(write_body, record_table) == 1
    record_table["balance"], record_table["total"] = 1, (1 << 64) - 3  # unsigned: not below 5
    assert run_function(write_body, record_table) == 5


def test_narrower_operand_is_extended_and_store_truncates(record_table: RecordBlock) -> None:
    def write_body(b: StructuredBuilder, record: RecordView) -> None:
        record.total = record.count + record.total
        record.small = record.total
        record.numbers[1] = record.total >> 32
        b.give(0)

    record_table["count"], record_table["total"] = 0xFFFFFFFF, 0x5_0000_0002
    run_function(write_body, record_table)
    assert record_table["total"] == 0x6_0000_0001 and record_table["small"] == 1
    assert record_table.record["numbers"][1] == 6


def test_python_if_on_an_ir_value_is_rejected() -> None:
    b, (flag,) = define(KernelModule("test"), "f", ir.VoidType(), flag=I1)
    with pytest.raises(TypeError, match=r"b\.if_"):
        assert flag
    with pytest.raises(KeyError):
        assert b.record(TABLE, define(KernelModule("other"), "g", I32, table=TABLE)[1][0].address).nothing
