"""Store watchpoints: record every store that touches the watched addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder, HelperBuilder
from zinc_rt.sim.shader.emit.values import I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import CONTEXT, STATE, WATCH, RecordBlock, Site

KEPT = 4096  # records of one thread


@dataclass(frozen=True, slots=True)
class LaneStore:
    """A store of one lane, with its instruction (byte offset in the kernel). `group` is linear in the launch.
    `value` is the lowest 8 bytes stored at `address`, or the operand of an atomic.
    """

    pc: int
    group: int
    wave: int
    lane: int
    address: int
    value: int


class StoreWatchpoint:
    """A watchpoint on [va, va + size_bytes), for the threads of a launch."""

    def __init__(self, va: int, size_bytes: int) -> None:
        self.va, self.size_bytes = va, size_bytes
        self._threads: dict[int, tuple[RecordBlock, np.ndarray]] = {}

    def attach(self, context: RecordBlock) -> None:
        """Attach to the context of each thread. Call before each launch."""
        if context.address not in self._threads:
            self._threads[context.address] = context, np.zeros(KEPT, WATCH.dtype)
        records = self._threads[context.address][1]
        context["watch_lo"], context["watch_hi"] = self.va, self.va + self.size_bytes
        context["watch"], context["watch_capacity"] = int(records.ctypes.data), len(records)
        context["watch_count"] = 0

    def list_hits(self, sites: Sequence[Site]) -> list[LaneStore]:
        """Return the hits since `attach`, in order per thread, at most the first KEPT of each. `sites` are the
        kernel's sites.
        """
        return [
            LaneStore(sites[site].pc, group, wave, lane, address, value)
            for context, records in self._threads.values()
            for site, wave, group, lane, address, value in records[: min(context["watch_count"], KEPT)].tolist()
        ]


def detach(context: RecordBlock) -> None:
    context["watch_lo"], context["watch_hi"] = 0, 0


RECORD = ir.FunctionType(VOID, [POINTER, POINTER, I32, I32, I64, I64])
"""(state, context, site, lane, address, value)"""


def record_if_watched(
    b: CodeBuilder,
    where: tuple[ir.Value, ir.Value, ir.Value],
    lane: ir.Value,
    va: ir.Value,
    data: ir.Value,
    size_bytes: int,
) -> None:
    """Record the store of one lane if it is watched. `where`: (state, context, site); `data`: a pointer."""
    state, context, site = where
    low, high = b.get(context, CONTEXT, "watch_lo"), b.get(context, CONTEXT, "watch_hi")
    hit = b.all(b.below(va, high), b.below(low, b.add(va, size_bytes)))
    with b.if_then(hit, likely=False):
        of = ir.IntType(8 * min(size_bytes, 8))
        value = b.load(data, typ=of, align=1)
        record = b.helper("zrt.watch", RECORD, _record)
        arguments = [state, context, site, b.trunc(lane, I32), va, value if of == I64 else b.zext(value, I64)]
        b.call(record, arguments)


def _record(function: ir.Function) -> None:
    function.attributes.add("cold")
    b = HelperBuilder(function)
    state, context, site, lane, address, value = function.args
    number = b.get(context, CONTEXT, "watch_count")
    b.put(context, CONTEXT, "watch_count", b.add(number, 1))
    with b.if_then(b.below(number, b.get(context, CONTEXT, "watch_capacity"))):
        record = b.get(context, CONTEXT, "watch")
        record = b.offset(record, b.mul(b.zext(number, I64), WATCH.size_bytes))
        values = {
            "site": site,
            "wave": b.get(state, STATE, "wave_in_group"),
            "group": b.get(state, STATE, "group"),
            "lane": lane,
            "address": address,
            "value": value,
        }
        for name, item in values.items():
            b.put(record, WATCH, name, item)
    b.ret_void()
    b.done()
