"""Out of line: which range an address is in, and a memory instruction's cached range."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.checks.initialised import KNOWN_CHUNK, chunk_known
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.routine import I1, I32, I64, POINTER, VOID, Routine
from zinc_rt.sim.shader.layout import CONTEXT, EXTENT, MEMORY_SITE, PLAIN, RANGE, WATCHED, Checks, WaveAccess
from zinc_rt.sim.shader.memory.ranges import RangeFlag

FIND = ir.FunctionType(POINTER, [POINTER, I32, I64, I64])
REFILL = ir.FunctionType(I1, [POINTER, POINTER, I64, I64, I32, I64])
NOTHING = ir.Constant(POINTER, None)
STORES = (WaveAccess.WRITE, WaveAccess.ATOMIC)


def find(e: Emitter) -> ir.Function:
    """RANGE*(table, count, first VA, VA after the last): the entry that holds them all, or null."""
    return e.helper("zrt.find", FIND, _find)


def _find(function: ir.Function) -> None:
    r = Routine(function)
    b = r.b
    table, count, first, end = function.args
    low, high = r.local(I64, 0), r.local(I64, b.zext(count, I64))
    test, turn, found = r.block("test"), r.block("turn"), r.block("found")

    def entry(index: ir.Value) -> ir.Value:
        return r.offset(table, b.mul(index, I64(RANGE.size_bytes)))

    b.branch(test)
    b.position_at_end(test)
    b.cbranch(r.below(r.load(low, I64), r.load(high, I64)), turn, found)
    b.position_at_end(turn)
    middle = b.lshr(b.add(r.load(low, I64), r.load(high, I64)), I64(1))
    starts = r.at_most(r.get(entry(middle), RANGE, "va_lo"), first)
    with b.if_else(starts) as (yes, no):
        with yes:
            b.store(b.add(middle, I64(1)), low)
        with no:
            b.store(middle, high)
    b.branch(test)
    b.position_at_end(found)
    number = r.load(low, I64)
    with r.when(r.equal(number, 0)):
        b.ret(NOTHING)
    last = entry(b.sub(number, I64(1)))
    limit = r.get(last, RANGE, "va_hi")
    fits = r.all(r.at_most(first, limit), r.at_most(end, limit), r.at_most(first, end))
    b.ret(b.select(fits, last, NOTHING))
    r.done()


def refill(e: Emitter) -> ir.Function:
    """i1(context, MEMORY_SITE, first VA, VA after the last, WaveAccess, bytes of a wide access): the site's cached
    range is now the one that holds them all and permits it; false, and nothing changed, where there is none."""
    checks = e.checks
    return e.helper("zrt.refill", REFILL, lambda function: _refill(function, find(e), checks))


def permitted(r: Routine, flags: ir.Value, kind: ir.Value) -> ir.Value:
    """i1: whether RangeFlags allow an access of the kind (i32)."""
    read = r.b.icmp_unsigned("!=", kind, I32(WaveAccess.WRITE))
    write = r.any(r.equal(kind, WaveAccess.WRITE), r.equal(kind, WaveAccess.ATOMIC))
    wanted = r.b.or_(
        r.b.select(read, I32(RangeFlag.READ), I32(0)), r.b.select(write, I32(RangeFlag.WRITE), I32(0))
    )
    return r.equal(r.b.and_(flags, wanted), wanted)


def _refill(function: ir.Function, find: ir.Function, checks: Checks) -> None:
    r = Routine(function)
    b = r.b
    context, site, first, end, kind, wide = function.args
    count = r.get(context, CONTEXT, "ranges_count")
    found = b.call(find, [r.get(context, CONTEXT, "ranges"), count, first, end])
    with r.when(r.equal(found, NOTHING)):
        b.ret(I1(0))
    flags = r.get(found, RANGE, "flags")
    with r.when(b.not_(permitted(r, flags, kind))):
        b.ret(I1(0))
    before = r.get(site, MEMORY_SITE, "range")
    with r.when(b.icmp_unsigned("!=", before, NOTHING)):
        row = b.add(b.mul(kind, count), r.get(before, RANGE, "index"))
        extents = r.get(context, CONTEXT, "extents")
        extent = r.offset(extents, b.mul(b.zext(row, I64), I64(EXTENT.size_bytes)))
        for name in ("touched_below", "touched_above"):
            old, new = r.get(extent, EXTENT, name), r.get(site, MEMORY_SITE, name)
            r.put(extent, EXTENT, name, b.select(r.below(old, new), new, old))
    low, high = r.get(found, RANGE, "va_lo"), r.get(found, RANGE, "va_hi")
    plain = I1(1)
    stores = r.any(*[r.equal(kind, each) for each in STORES])
    if checks.fast:
        plain = r.has(flags, RangeFlag.CLEAN)
    if checks.full:
        plain = b.and_(plain, b.not_(stores))
    watched = r.all(
        r.below(r.get(context, CONTEXT, "watch_lo"), high), r.below(low, r.get(context, CONTEXT, "watch_hi"))
    )
    special = b.and_(stores, b.or_(watched, r.has(flags, RangeFlag.SAVED)))
    plain = b.and_(plain, b.not_(special))
    r.put(site, MEMORY_SITE, "va_lo", low)
    r.put(site, MEMORY_SITE, "va_hi", high)
    size = b.sub(high, low)
    room = b.select(r.at_most(wide, size), b.add(b.sub(size, wide), I64(1)), I64(0))
    r.put(site, MEMORY_SITE, "plain_lo", low)
    r.put(site, MEMORY_SITE, "room", b.select(plain, room, I64(0)))
    r.put(site, MEMORY_SITE, "delta", r.get(found, RANGE, "delta"))
    r.put(site, MEMORY_SITE, "range", found)
    r.put(site, MEMORY_SITE, "touched_below", 0)
    r.put(site, MEMORY_SITE, "touched_above", 0)
    marks = b.or_(b.select(plain, I32(PLAIN), I32(0)), b.select(watched, I32(WATCHED), I32(0)))
    r.put(site, MEMORY_SITE, "flags", b.or_(flags, marks))
    r.put(site, MEMORY_SITE, "kind", kind)
    b.ret(I1(1))
    r.done()


WIDEN = ir.FunctionType(VOID, [POINTER, I64, I64, I64])
_REACH, _FURTHEST = 1 << 10, 1 << 18


def widen(e: Emitter) -> ir.Function:
    """void(MEMORY_SITE, first VA, VA after the last, bytes of a wide access): the bytes are known to be
    initialised; wide accesses to those behind them that are, too, need no more checks. The further from access to
    access, the more is looked through."""
    return e.helper("zrt.widen", WIDEN, _widen)


def _widen(function: ir.Function) -> None:
    r = Routine(function)
    b = r.b
    site, first, end, wide = function.args
    shadow = r.get(r.get(site, MEMORY_SITE, "range"), RANGE, "shadow")
    high = r.get(site, MEMORY_SITE, "va_hi")
    before = b.add(r.get(site, MEMORY_SITE, "plain_lo"), r.get(site, MEMORY_SITE, "room"))
    reach = r.get(site, MEMORY_SITE, "reach")
    goes_on = r.below(b.sub(first, before), reach)  # not far behind what was known
    doubled = b.shl(reach, I64(1))
    doubled = b.select(r.below(doubled, I64(_FURTHEST)), doubled, I64(_FURTHEST))
    reach = b.select(goes_on, doubled, I64(_REACH))
    r.put(site, MEMORY_SITE, "reach", reach)
    limit = b.add(end, reach)
    limit = b.select(r.below(limit, high), limit, high)
    start = b.and_(end, I64(-4 * KNOWN_CHUNK))
    turn, behind, after = r.block("turn"), r.block("next"), r.block("after")
    before_loop = b.block
    b.branch(turn)
    b.position_at_end(turn)
    at = b.phi(I64)
    at.add_incoming(start, before_loop)
    following = b.add(at, I64(4 * KNOWN_CHUNK))
    b.cbranch(r.at_most(following, limit), behind, after)
    b.position_at_end(behind)
    at.add_incoming(following, behind)
    b.cbranch(chunk_known(r, b.inttoptr(b.add(shadow, b.lshr(at, I64(2))), POINTER)), turn, after)
    b.position_at_end(after)
    known_end = b.select(r.below(at, end), end, at)
    size = b.sub(known_end, first)
    room = b.select(r.at_most(wide, size), b.add(b.sub(size, wide), I64(1)), I64(0))
    r.put(site, MEMORY_SITE, "plain_lo", first)
    r.put(site, MEMORY_SITE, "room", room)
    b.ret_void()
    r.done()


def touch(r: Routine, site: ir.Value, first: ir.Value, end: ir.Value) -> None:
    """Note that [first, end) was accessed."""
    for name, value in (("touched_below", r.b.not_(first)), ("touched_above", end)):
        old = r.get(site, MEMORY_SITE, name)
        r.put(site, MEMORY_SITE, name, r.b.select(r.below(old, value), value, old))


def inside(r: Routine, site: ir.Value, first: ir.Value, last: ir.Value, size_bytes: int) -> ir.Value:
    """i1: whether accesses of `size_bytes` at `first` to `last` are in the site's cached range."""
    low, high = r.get(site, MEMORY_SITE, "va_lo"), r.get(site, MEMORY_SITE, "va_hi")
    end = r.b.add(last, I64(size_bytes))
    return r.all(r.at_most(low, first), r.at_most(last, high), r.at_most(end, high))
