"""Vector memory accesses of a wave: the common case of hot loops is emitted in line, the rest out of line
(lane_access.py).

The in-line case: all lanes are active, their data are contiguous in ascending order, within the range this
instruction used last, and no other check is needed (PLAIN). One wide load or store then moves the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa.encodings.cache_policy import DEVICE_SCOPE, find_scope, returns_previous
from zinc_rt.sim.shader.checks.lane_marks import find_first_site
from zinc_rt.sim.shader.checks.races import RETURNS, SCOPED, SYNCHRONISING
from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.quads import WORDS
from zinc_rt.sim.shader.emit.values import I1, I8, I16, I32, I64, POINTER, VOID, constant, vector_of
from zinc_rt.sim.shader.layout import MEMORY_SITE, RANGE, Status
from zinc_rt.sim.shader.memory import lane_access
from zinc_rt.sim.shader.memory.lane_checks import HIGH, RULES
from zinc_rt.sim.shader.memory.touched import extend_to, follows

OFTEN = 1 << 20


@dataclass
class Addresses:
    """Addresses of the lanes: base + low[i] (+ high[i] << 32). `base` is i64, the vectors are <W x i32>."""

    base: ir.Value
    low: ir.Value
    high: ir.Value | None = None

    def vector(self, e: Emitter) -> ir.Value:
        """Return the addresses as <W x i64>."""
        of = e.b.lanes(I64)
        whole = e.b.zext(self.low, of)
        if self.high is not None:
            whole = e.b.or_(whole, e.b.shl(e.b.zext(self.high, of), 32))
        return e.b.add(whole, e.b.splat(self.base))

    def side_by_side(self, e: Emitter, size_bytes: int) -> tuple[ir.Value, ir.Value]:
        """Return (i1: lane i is at lane 0's address + i * size, lane 0's address)."""
        b = e.b
        first = b.extract_element(self.low, constant(0))
        steps = vector_of(lane * size_bytes for lane in range(e.wave))
        same = b.bits(b.equal(self.low, b.add(b.splat(first), steps)))
        condition = b.equal(same, -1)
        room = constant((1 << 32) - e.wave * size_bytes)  # the low halves must not wrap around
        condition = b.and_(condition, b.at_most(first, room))
        va = b.zext(first, I64)
        if self.high is not None:
            top = b.extract_element(self.high, constant(0))
            equal = b.bits(b.equal(self.high, b.splat(top)))
            condition = b.and_(condition, b.equal(equal, -1))
            va = b.or_(va, b.shl(b.zext(top, I64), 32))
        return condition, b.add(va, self.base)


def memory_site(e: Emitter) -> ir.Value:
    """Return a new MEMORY_SITE*."""
    e.memory_pcs.append(e.frame.pc)
    number = e.b.zext(e.frame.numbered("memory", e.count("memory")), I64)
    return e.b.offset(e.frame.field("memory_sites"), e.b.mul(number, MEMORY_SITE.size_bytes))


def rule_sites(e: Emitter, flags: int = 0) -> ir.Value:
    """Return the i32 number of the first site of lane_checks.RULES, combined with the flags of the access."""
    first = e.frame.numbered("site", find_first_site(e, RULES))
    value, returns = find_scope(e.instruction, e.rules), returns_previous(e.instruction)
    flags |= RETURNS * returns | SCOPED * (value > 0 or e.guesses) | SYNCHRONISING * (value >= DEVICE_SCOPE)
    return e.b.or_(first, flags)


def buffers(e: Emitter) -> tuple[ir.Value, ir.Value]:
    """Return the frame's (addresses, data) buffers for out-of-line accesses."""
    return e.frame.shared("addresses", e.b.lanes(I64)), e.frame.shared("data", ir.VectorType(I32, 4 * e.wave))


def _fast(e: Emitter, at: Addresses, size_bytes: int, site: ir.Value) -> tuple[ir.Value, ...]:
    """Return (i1: the wide access is sufficient, VA of lane 0, VA after the last lane)."""
    b = e.b
    condition, first = at.side_by_side(e, size_bytes)
    condition = b.and_(condition, e.exec.is_full())
    end = b.add(first, e.wave * size_bytes)
    condition = b.all(condition, plain(e, site, first), follows(b, site, first))
    if e.checks.full and size_bytes > 1:
        off = b.and_(first, min(size_bytes, 4) - 1)
        condition = b.and_(condition, b.equal(off, 0))
    return condition, first, end


def plain(e: Emitter, site: ir.Value, first: ir.Value) -> ir.Value:
    """Return i1: a wide access at `first` is within the site's cached range and needs no other check."""
    b = e.b
    behind = b.sub(first, e.b.get(site, MEMORY_SITE, "plain_lo"))
    return b.below(behind, e.b.get(site, MEMORY_SITE, "room"))


def undefined_sites(e: Emitter, site: ir.Value, condition: ir.Value) -> ir.Value:
    """Return i1: the condition holds and, in mode full, this dispatch has not stored to the range."""
    before, look, behind = e.b.block, e.b.append_basic_block("stored"), e.b.append_basic_block()
    e.b.cbranch(condition, look, behind).set_weights([OFTEN, 1])
    e.b.position_at_end(look)
    where = e.b.get(site, MEMORY_SITE, "range")
    unstored = e.b.unequal(e.b.get(where, RANGE, "stored"), e.frame.field("serial"))
    e.b.branch(behind)
    e.b.position_at_end(behind)
    result = e.b.phi(I1)
    result.add_incoming(constant(0, I1), before)
    result.add_incoming(unstored, look)
    return result


def call_lanes(
    e: Emitter, helper: ir.Function, at: Addresses, site: ir.Value, lanes: ir.Value | None = None
) -> None:
    """Call an out-of-line access of `lanes` (i64, default EXEC's); a fault ends the wave."""
    offsets, data = buffers(e)
    e.b.store(at.low, offsets)
    if at.high is not None:
        e.b.store(at.high, e.b.offset(offsets, 4 * e.wave))
    if lanes is None:
        lanes = e.exec.wide()
    rules = rule_sites(e, HIGH * (at.high is not None))
    arguments = [e.frame.state, e.frame.context, site, rules, lanes, at.base, offsets, data]
    faulted = e.b.call(helper, arguments)
    with e.b.cold(faulted):
        e.reports.leave(Status.FAULT)


OutOfLine = Callable[[Emitter, ir.Function, Addresses, ir.Value], None]
"""(emitter, helper, addresses, site): how a load or store calls its helper; call_lanes"""


def host_pointer(e: Emitter, site: ir.Value, va: ir.Value) -> ir.Value:
    return e.b.inttoptr(e.b.add(va, e.b.get(site, MEMORY_SITE, "delta")), POINTER)


LINE_BYTES, PREFETCHED_BYTES = 64, 256
AHEAD = 2  # turns


def prefetch(e: Emitter, host: ir.Value, size_bytes: int) -> None:
    """Prefetch data that the instruction will load in later iterations, if it steps through memory by its size.
    The rows of a wave form many short streams, which hardware prefetchers detect late.
    """
    if size_bytes < PREFETCHED_BYTES:
        return
    for line in range(0, size_bytes, LINE_BYTES):
        offset = e.b.offset(host, AHEAD * size_bytes + line)
        e.b.intrinsic("llvm.prefetch", VOID, offset, I32(0), I32(3), I32(1), types=(POINTER,))


_ELEMENT = {1: I8, 2: I16}


def fast_or_slow(
    b: CodeBuilder, condition: ir.Value, fast: Callable[[], ir.Value], slow: Callable[[], ir.Value]
) -> ir.Value:
    """Return the pointer from `fast` if the i1 is true, which is expected, otherwise from `slow`."""
    blocks = [b.append_basic_block(name) for name in ("fast", "slow", "")]
    b.cbranch(condition, *blocks[:2]).set_weights([OFTEN, 1])
    ends = []
    for block, build in zip(blocks, (fast, slow), strict=False):
        b.position_at_end(block)
        ends.append((build(), b.block))
        b.branch(blocks[2])
    b.position_at_end(blocks[2])
    result = b.phi(POINTER)
    for pointer, end in ends:
        result.add_incoming(pointer, end)
    return result


def load(e: Emitter, at: Addresses, size_bytes: int, out_of_line: OutOfLine = call_lanes) -> list[ir.Value]:
    """Load dwords as <W x i32>; 1 and 2 bytes are zero-extended. Inactive lanes are unspecified."""
    b = e.b
    site = memory_site(e)
    condition, first, end = _fast(e, at, size_bytes, site)
    if e.checks.full:
        condition = undefined_sites(e, site, condition)

    def fast() -> ir.Value:
        extend_to(b, site, end)
        host = host_pointer(e, site, first)
        prefetch(e, host, size_bytes * e.wave)
        return host

    def slow() -> ir.Value:
        out_of_line(e, lane_access.lanes_load(e, size_bytes), at, site)
        shared = buffers(e)[1]
        if not kept:
            return shared
        own = b.local(e.quads.whole)
        b.store(b.load(shared, typ=e.quads.whole, align=1), own)
        return own

    kept = e.quads.active and size_bytes == 4 * WORDS
    source = fast_or_slow(b, condition, fast, slow)
    dwords = split_dwords(e, source, size_bytes)
    if kept:
        e.quads.loaded_from(dwords[0].operands[0], source)
    return dwords


def store(
    e: Emitter,
    at: Addresses,
    dwords: list[ir.Value],
    size_bytes: int,
    out_of_line: OutOfLine = call_lanes,
) -> None:
    """Store dwords, <W x i32> each; for 1 and 2 bytes the lower bits of one."""
    b = e.b
    value = join_dwords(e, dwords, size_bytes)
    site = memory_site(e)
    behind = b.append_basic_block()
    if not e.checks.full:  # there each store is checked
        fast, slow = b.append_basic_block("fast"), b.append_basic_block("slow")
        condition, first, end = _fast(e, at, size_bytes, site)
        b.cbranch(condition, fast, slow).set_weights([OFTEN, 1])
        b.position_at_end(fast)
        extend_to(b, site, end)
        b.store(value, host_pointer(e, site, first), align=1)
        b.branch(behind)
        b.position_at_end(slow)
    b.store(value, buffers(e)[1], align=1)
    out_of_line(e, lane_access.lanes_store(e, size_bytes), at, site)
    b.branch(behind)
    b.position_at_end(behind)


def split_dwords(e: Emitter, source: ir.Value, size_bytes: int) -> list[ir.Value]:
    """Convert lane-major memory to dwords <W x i32>."""
    if size_bytes < 4:
        narrow = e.b.load(source, typ=e.b.lanes(_ELEMENT[size_bytes]), align=1)
        return [e.b.zext(narrow, e.b.lanes(I32))]
    words = size_bytes // 4
    document = e.b.load(source, typ=ir.VectorType(I32, words * e.wave), align=1)
    if words == 1:
        return [document]
    return [e.b.shuffled(document, range(word, words * e.wave, words)) for word in range(words)]


def join_dwords(e: Emitter, dwords: list[ir.Value], size_bytes: int) -> ir.Value:
    """Convert dwords <W x i32> to one lane-major vector."""
    if size_bytes < 4:
        return e.b.trunc(dwords[0], e.b.lanes(_ELEMENT[size_bytes]))
    words = size_bytes // 4
    if words == 1:
        return dwords[0]
    wave, b = e.wave, e.b
    undefined = ir.Constant(dwords[0].type, ir.Undefined)
    parts = [*dwords, *[undefined] * (4 - words if words == 3 else 0)]
    pairs = [b.shuffled(one, range(2 * wave), other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
    order = (word * wave + lane for lane in range(wave) for word in range(words))
    return b.shuffled(pairs[0], order, pairs[1] if words > 2 else None)
