"""Out-of-line search of the range that contains an address, and refill of a memory instruction's cached range."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.checks.initialised import KNOWN_CHUNK, emit_is_chunk_known
from zinc_rt.sim.shader.emit.builder import CodeBuilder, HelperBuilder
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import CONTEXT, MEMORY_SITE, PLAIN, RANGE, WATCHED, Checks, WaveAccess
from zinc_rt.sim.shader.memory.ranges import RangeFlag
from zinc_rt.sim.shader.memory.touched import stow

FIND = ir.FunctionType(POINTER, [POINTER, I32, I64, I64])
REFILL = ir.FunctionType(I1, [POINTER, POINTER, I64, I64, I32, I64])
NOTHING = ir.Constant(POINTER, None)
STORES = (WaveAccess.WRITE, WaveAccess.ATOMIC)


def find(b: CodeBuilder) -> ir.Function:
    """Return a function RANGE*(table, count, first VA, VA after the last): the entry that contains the whole
    interval, or null.
    """
    return b.helper("zrt.find", FIND, _find)


def _find(function: ir.Function) -> None:
    b = HelperBuilder(function)
    table, count, first, end = function.args
    low, high = b.local(I64, 0), b.local(I64, b.zext(count, I64))
    test, turn, result = b.append_basic_block("test"), b.append_basic_block("turn"), b.append_basic_block("found")

    def entry(index: ir.Value) -> ir.Value:
        return b.offset(table, b.mul(index, RANGE.size_bytes))

    b.branch(test)
    b.position_at_end(test)
    b.cbranch(b.below(b.load(low, typ=I64), b.load(high, typ=I64)), turn, result)
    b.position_at_end(turn)
    middle = b.lshr(b.add(b.load(low, typ=I64), b.load(high, typ=I64)), 1)
    starts = b.at_most(b.get(entry(middle), RANGE, "va_lo"), first)
    with b.if_else(starts) as (yes, no):
        with yes:
            b.store(b.add(middle, 1), low)
        with no:
            b.store(middle, high)
    b.branch(test)
    b.position_at_end(result)
    number = b.load(low, typ=I64)
    with b.if_then(b.equal(number, 0)):
        b.ret(NOTHING)
    last = entry(b.sub(number, 1))
    limit = b.get(last, RANGE, "va_hi")
    fits = b.all(b.at_most(first, limit), b.at_most(end, limit), b.at_most(first, end))
    b.ret(b.select(fits, last, NOTHING))
    b.done()


def refill(b: CodeBuilder, checks: Checks) -> ir.Function:
    """Return a function i1(context, MEMORY_SITE, first VA, VA after the last, WaveAccess, bytes of a wide
    access). It sets the site's cached range to the one that contains the interval and permits the access. If there
    is no such range, it returns false and changes nothing.
    """
    return b.helper("zrt.refill", REFILL, lambda function: _refill(function, checks))


def permitted(b: CodeBuilder, flags: ir.Value, kind: ir.Value) -> ir.Value:
    """Return i1: RangeFlags permit an access of the kind (i32)."""
    read = b.unequal(kind, WaveAccess.WRITE)
    write = b.any(b.equal(kind, WaveAccess.WRITE), b.equal(kind, WaveAccess.ATOMIC))
    wanted = b.or_(b.select(read, I32(RangeFlag.READ), I32(0)), b.select(write, I32(RangeFlag.WRITE), I32(0)))
    return b.equal(b.and_(flags, wanted), wanted)


def _refill(function: ir.Function, checks: Checks) -> None:
    b = HelperBuilder(function)
    context, site, first, end, kind, wide = function.args
    count = b.get(context, CONTEXT, "ranges_count")
    result = b.call(find(b), [b.get(context, CONTEXT, "ranges"), count, first, end])
    with b.if_then(b.equal(result, NOTHING)):
        b.ret(I1(0))
    flags = b.get(result, RANGE, "flags")
    with b.if_then(b.not_(permitted(b, flags, kind))):
        b.ret(I1(0))
    b.call(stow(b), [context, site])
    low, high = b.get(result, RANGE, "va_lo"), b.get(result, RANGE, "va_hi")
    plain = I1(1)
    stores = b.any(*[b.equal(kind, store) for store in STORES])
    if checks.fast:
        plain = b.has(flags, RangeFlag.CLEAN)
    if checks.full:
        plain = b.and_(plain, b.not_(stores))
    watched = b.all(
        b.below(b.get(context, CONTEXT, "watch_lo"), high), b.below(low, b.get(context, CONTEXT, "watch_hi"))
    )
    special = b.and_(stores, b.or_(watched, b.has(flags, RangeFlag.SAVED)))
    plain = b.all(plain, b.not_(special), b.equal(b.get(context, CONTEXT, "vector_cache"), 0))
    b.put(site, MEMORY_SITE, "va_lo", low)
    b.put(site, MEMORY_SITE, "va_hi", high)
    size = b.sub(high, low)
    room = b.select(b.at_most(wide, size), b.add(b.sub(size, wide), 1), 0)
    b.put(site, MEMORY_SITE, "plain_lo", low)
    b.put(site, MEMORY_SITE, "room", b.select(plain, room, 0))
    b.put(site, MEMORY_SITE, "delta", b.get(result, RANGE, "delta"))
    b.put(site, MEMORY_SITE, "range", result)
    marks = b.or_(b.select(plain, I32(PLAIN), I32(0)), b.select(watched, I32(WATCHED), I32(0)))
    b.put(site, MEMORY_SITE, "flags", b.or_(flags, marks))
    b.put(site, MEMORY_SITE, "kind", kind)
    b.ret(I1(1))
    b.done()


WIDEN = ir.FunctionType(VOID, [POINTER, I64, I64, I64])
_REACH, _FURTHEST = 1 << 10, 1 << 18


def widen(b: CodeBuilder) -> ir.Function:
    """Return a function void(MEMORY_SITE, first VA, VA after the last, bytes of a wide access). The bytes are
    known to be initialised; it extends the checked interval over initialised bytes that follow, so that wide
    accesses there need no more checks. The larger the stride between accesses, the more bytes are examined.
    """
    return b.helper("zrt.widen", WIDEN, _widen)


def _widen(function: ir.Function) -> None:
    b = HelperBuilder(function)
    site, first, end, wide = function.args
    shadow = b.get(b.get(site, MEMORY_SITE, "range"), RANGE, "shadow")
    high = b.get(site, MEMORY_SITE, "va_hi")
    before = b.add(b.get(site, MEMORY_SITE, "plain_lo"), b.get(site, MEMORY_SITE, "room"))
    reach = b.get(site, MEMORY_SITE, "reach")
    goes_on = b.below(b.sub(first, before), reach)  # shortly after the known range
    doubled = b.shl(reach, 1)
    doubled = b.select(b.below(doubled, _FURTHEST), doubled, _FURTHEST)
    reach = b.select(goes_on, doubled, _REACH)
    b.put(site, MEMORY_SITE, "reach", reach)
    limit = b.add(end, reach)
    limit = b.select(b.below(limit, high), limit, high)
    start = b.and_(end, I64(-4 * KNOWN_CHUNK))
    turn, behind, after = b.append_basic_block("turn"), b.append_basic_block("next"), b.append_basic_block("after")
    before_loop = b.block
    b.branch(turn)
    b.position_at_end(turn)
    index = b.phi(I64)
    index.add_incoming(start, before_loop)
    following = b.add(index, 4 * KNOWN_CHUNK)
    b.cbranch(b.at_most(following, limit), behind, after)
    b.position_at_end(behind)
    index.add_incoming(following, behind)
    b.cbranch(emit_is_chunk_known(b, b.inttoptr(b.add(shadow, b.lshr(index, 2)), POINTER)), turn, after)
    b.position_at_end(after)
    known_end = b.select(b.below(index, end), end, index)
    size = b.sub(known_end, first)
    room = b.select(b.at_most(wide, size), b.add(b.sub(size, wide), 1), 0)
    b.put(site, MEMORY_SITE, "plain_lo", first)
    b.put(site, MEMORY_SITE, "room", room)
    b.ret_void()
    b.done()


def inside(b: CodeBuilder, site: ir.Value, first: ir.Value, last: ir.Value, size_bytes: int) -> ir.Value:
    """Return i1: accesses of `size_bytes` at `first` to `last` are in the site's cached range."""
    low, high = b.get(site, MEMORY_SITE, "va_lo"), b.get(site, MEMORY_SITE, "va_hi")
    end = b.add(last, size_bytes)
    return b.all(b.at_most(low, first), b.at_most(last, high), b.at_most(end, high))
