"""Store watchpoints: every store that touches the context's watched addresses is recorded."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emitter import Emitter
from zinc_rt.sim.shader.layout import CONTEXT, STATE, WATCH
from zinc_rt.sim.shader.routine import I32, I64, POINTER, VOID, Routine

RECORD = ir.FunctionType(VOID, [POINTER, POINTER, I32, I32, I64, I64])
"""(state, context, site, lane, address, value)"""


def look(
    e: Emitter,
    r: Routine,
    where: tuple[ir.Value, ir.Value, ir.Value],
    lane: ir.Value,
    va: ir.Value,
    data: ir.Value,
    size_bytes: int,
) -> None:
    """Record the store of one lane if it is watched. `where`: (state, context, site); `data`: a pointer."""
    state, context, site = where
    b = r.b
    low, high = r.get(context, CONTEXT, "watch_lo"), r.get(context, CONTEXT, "watch_hi")
    hit = r.all(r.below(va, high), r.below(low, b.add(va, I64(size_bytes))))
    with r.when(hit, likely=False):
        of = ir.IntType(8 * min(size_bytes, 8))
        value = r.load(data, of, 1)
        record = e.helper("zrt.watch", RECORD, _record)
        arguments = [state, context, site, b.trunc(lane, I32), va, value if of == I64 else b.zext(value, I64)]
        b.call(record, arguments)


def _record(function: ir.Function) -> None:
    function.attributes.add("cold")
    r = Routine(function)
    b = r.b
    state, context, site, lane, address, value = function.args
    number = r.get(context, CONTEXT, "watch_count")
    r.put(context, CONTEXT, "watch_count", b.add(number, I32(1)))
    with r.when(r.below(number, r.get(context, CONTEXT, "watch_capacity"))):
        record = r.get(context, CONTEXT, "watch")
        record = r.offset(record, b.mul(b.zext(number, I64), I64(WATCH.size_bytes)))
        values = {
            "site": site,
            "wave": r.get(state, STATE, "wave_in_group"),
            "group": r.get(state, STATE, "group"),
            "lane": lane,
            "address": address,
            "value": value,
        }
        for name, each in values.items():
            r.put(record, WATCH, name, each)
    b.ret_void()
    r.done()
