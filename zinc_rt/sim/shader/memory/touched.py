"""Record the memory that an instruction accesses, as intervals, for the hazard tracker.

A memory site has one interval that it extends, and KEPT others. An access that neither touches the interval nor is
within `slack` of it starts another, so memory between two buffers that one instruction reads does not count as
read. If all are in use, one is merged into its range's EXTENT, and the slack grows: an instruction with scattered
accesses soon has few, large intervals again.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder, HelperBuilder
from zinc_rt.sim.shader.emit.values import I64, POINTER, VOID
from zinc_rt.sim.shader.layout import CONTEXT, EXTENT, INTERVAL, KEPT, MEMORY_SITE, RANGE

_STOW = ir.FunctionType(VOID, [POINTER, POINTER])
_OPEN = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64])
_NULL = ir.Constant(POINTER, None)
_NOWHERE = 1 << 63  # both ends of an empty interval: no access follows it, whatever the slack
_FIRST_SLACK, _LARGEST_SLACK, _GROWTH = 64, 1 << 40, 2  # bytes, bytes, log2


def follows(b: CodeBuilder, site: ir.Value, first: ir.Value) -> ir.Value:
    """Return i1: an access at `first` starts in the site's interval, or within the slack after it. The case of hot
    loops.
    """
    low, high = b.get(site, MEMORY_SITE, "touched_lo"), b.get(site, MEMORY_SITE, "touched_hi")
    size = b.add(b.sub(high, low), b.get(site, MEMORY_SITE, "slack"))
    return b.at_most(b.sub(first, low), size)


def extend_to(b: CodeBuilder, site: ir.Value, end: ir.Value) -> None:
    """Record an access that follows the site's interval and ends before `end`."""
    high = b.get(site, MEMORY_SITE, "touched_hi")
    b.put(site, MEMORY_SITE, "touched_hi", b.select(b.below(high, end), end, high))


def touch(b: CodeBuilder, context: ir.Value, site: ir.Value, first: ir.Value, end: ir.Value) -> None:
    """Record that [first, end), in the site's cached range, is accessed."""
    with b.cold(b.not_(follows(b, site, first))):
        b.call(_open(b), [context, site, first, end])
    extend_to(b, site, end)


def is_inside(b: CodeBuilder, site: ir.Value, first: ir.Value, end: ir.Value) -> ir.Value:
    """Return i1: [first, end) is in the site's interval, extended by its slack at both ends."""
    low, high = b.get(site, MEMORY_SITE, "touched_lo"), b.get(site, MEMORY_SITE, "touched_hi")
    slack = b.get(site, MEMORY_SITE, "slack")
    return b.all(b.unequal(low, high), b.at_most(low, b.add(first, slack)), b.at_most(end, b.add(high, slack)))


def stow(b: CodeBuilder) -> ir.Function:
    """Return a function void(context, MEMORY_SITE) that keeps the site's interval and leaves it without one; call
    before the cached range changes.
    """
    return b.helper("zrt.stow", _STOW, _build_stow)


def _build_stow(function: ir.Function) -> None:
    b = HelperBuilder(function)
    context, site = function.args
    low, high = b.get(site, MEMORY_SITE, "touched_lo"), b.get(site, MEMORY_SITE, "touched_hi")
    with b.if_then(b.equal(low, high)):
        b.ret_void()
    free = b.local(POINTER, _NULL)

    def look(index: ir.Value) -> None:
        kept = _kept(b, site, index)
        with b.if_then(b.equal(b.get(kept, INTERVAL, "hi"), 0)):
            b.store(kept, free)

    b.repeat(KEPT, look)
    stowed = b.get(site, MEMORY_SITE, "stowed")
    b.put(site, MEMORY_SITE, "stowed", b.add(stowed, 1))
    with b.if_then(b.equal(b.load(free, typ=POINTER), _NULL)):
        victim = _kept(b, site, b.zext(b.urem(stowed, KEPT), I64))
        _merge_into_extent(b, context, site, victim)
        b.store(victim, free)
        slack = b.shl(b.get(site, MEMORY_SITE, "slack"), _GROWTH)
        slack = b.select(b.below(slack, _FIRST_SLACK), I64(_FIRST_SLACK), slack)
        b.put(site, MEMORY_SITE, "slack", b.select(b.below(slack, _LARGEST_SLACK), slack, I64(_LARGEST_SLACK)))
    slot = b.load(free, typ=POINTER)
    b.put(slot, INTERVAL, "lo", low)
    b.put(slot, INTERVAL, "hi", high)
    b.put(slot, INTERVAL, "range", b.get(site, MEMORY_SITE, "range"))
    b.put(site, MEMORY_SITE, "touched_lo", _NOWHERE)
    b.put(site, MEMORY_SITE, "touched_hi", _NOWHERE)
    b.ret_void()
    b.done()


def _open(b: CodeBuilder) -> ir.Function:
    """Return a function void(context, MEMORY_SITE, first VA, VA after the last): the site goes on with these bytes
    and its intervals near them as one. An interval that is not near is kept.
    """
    return b.helper("zrt.open", _OPEN, _build_open)


def _build_open(function: ir.Function) -> None:
    b = HelperBuilder(function)
    context, site, first, end = function.args
    slack, where = b.get(site, MEMORY_SITE, "slack"), b.get(site, MEMORY_SITE, "range")
    low, high = b.local(I64, first), b.local(I64, end)

    def join(other_low: ir.Value, other_high: ir.Value) -> None:
        before = b.load(low, typ=I64)
        b.store(b.select(b.below(other_low, before), other_low, before), low)
        before = b.load(high, typ=I64)
        b.store(b.select(b.below(before, other_high), other_high, before), high)

    def near(other_low: ir.Value, other_high: ir.Value) -> ir.Value:
        return b.and_(b.at_most(first, b.add(other_high, slack)), b.at_most(other_low, b.add(end, slack)))

    def look(index: ir.Value) -> None:
        kept = _kept(b, site, index)
        kept_low, kept_high = b.get(kept, INTERVAL, "lo"), b.get(kept, INTERVAL, "hi")
        same = b.and_(b.unequal(kept_high, 0), b.equal(b.get(kept, INTERVAL, "range"), where))
        with b.if_then(b.and_(same, near(kept_low, kept_high))):
            join(kept_low, kept_high)
            b.put(kept, INTERVAL, "hi", 0)

    b.repeat(KEPT, look)
    site_low, site_high = b.get(site, MEMORY_SITE, "touched_lo"), b.get(site, MEMORY_SITE, "touched_hi")
    with b.if_else(b.and_(b.unequal(site_low, site_high), near(site_low, site_high))) as (yes, no):
        with yes:
            join(site_low, site_high)
        with no:
            b.call(stow(b), [context, site])
    b.put(site, MEMORY_SITE, "touched_lo", b.load(low, typ=I64))
    b.put(site, MEMORY_SITE, "touched_hi", b.load(high, typ=I64))
    b.ret_void()
    b.done()


def _kept(b: CodeBuilder, site: ir.Value, index: ir.Value) -> ir.Value:
    """Return the INTERVAL* with this index (i64)."""
    return b.offset(b.at(site, MEMORY_SITE, "kept"), b.mul(index, INTERVAL.size_bytes))


def _merge_into_extent(b: CodeBuilder, context: ir.Value, site: ir.Value, kept: ir.Value) -> None:
    where = b.get(kept, INTERVAL, "range")
    count = b.get(context, CONTEXT, "ranges_count")
    row = b.add(b.mul(b.get(site, MEMORY_SITE, "kind"), count), b.get(where, RANGE, "index"))
    extent = b.offset(b.get(context, CONTEXT, "extents"), b.mul(b.zext(row, I64), EXTENT.size_bytes))
    for name, new in (
        ("touched_below", b.not_(b.get(kept, INTERVAL, "lo"))),
        ("touched_above", b.get(kept, INTERVAL, "hi")),
    ):
        old = b.get(extent, EXTENT, name)
        b.put(extent, EXTENT, name, b.select(b.below(old, new), new, old))
