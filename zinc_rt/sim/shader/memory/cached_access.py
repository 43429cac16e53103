"""Out-of-line accesses through the caches simulated by --coherence caches (docs/shader-memory.md).

A cache is an array of CACHE_LINE records at `cache`, direct-mapped. An access has at most 16 bytes and touches one
or two lines.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder, HelperBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I8, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import ARRAY_CACHE, CACHE_LINE, VECTOR_CACHE, CacheShape

_LOADED = ir.FunctionType(I1, [I64, I64, I64, POINTER, POINTER, I64, I1, I64])
_UPDATED = ir.FunctionType(VOID, [I64, I64, POINTER, I64])
_DROPPED = ir.FunctionType(VOID, [I64, I64])
_FILLED = ir.FunctionType(VOID, [I64, POINTER, I64, POINTER, I64])
_EMPTIED = ir.FunctionType(VOID, [I64])
_HELD = 1  # in a tag, next to the line's VA


def load_helper(b: CodeBuilder, shape: CacheShape) -> ir.Function:
    """Return a function i1(cache, array, VA, host, data, bytes, past, serial) that loads to `data`. A hit reads
    the line; a miss fills the line, from memory (`host`) or through the GL1 at `array` unless that is 0. `past`:
    the scope exceeds the cache's, so it always reads memory and drops the lines. It returns true if the loaded
    data differ from memory.
    """
    name = f"zrt.loaded{shape.line_bytes}"

    def build(function: ir.Function) -> None:
        b = HelperBuilder(function)
        helper = b.helper(f"{name}.line", _LOADED, lambda function: _loaded_line(function, shape))
        caches, (va, host, data, size, past, serial) = function.args[:2], function.args[2:]
        first, rest = _parts(b, va, size, shape)
        stale = b.local(I1, b.call(helper, [*caches, va, host, data, first, past, serial]))
        with b.if_then(b.unequal(rest, 0), likely=False):
            second = [b.add(va, first), b.offset(host, first), b.offset(data, first)]
            behind = [*caches, *second, rest, past, serial]
            b.store(b.or_(b.load(stale, typ=I1), b.call(helper, behind)), stale)
        b.ret(b.load(stale, typ=I1))
        b.done()

    return b.helper(name, _LOADED, build)


def _loaded_line(function: ir.Function, shape: CacheShape) -> None:
    b = HelperBuilder(function)
    cache, array, va, host, data, size, past, serial = function.args
    record, tag, held = _line(b, cache, va, shape)
    with b.if_then(past):
        with b.if_then(held):
            b.put(record, CACHE_LINE, "tag", 0)
        with b.if_then(b.unequal(array, 0)):
            b.call(drop_helper(b, ARRAY_CACHE), [array, va])
        _copy(b, data, host, size)
        b.ret(I1(0))
    inside = b.and_(va, shape.line_bytes - 1)
    kept = b.at(record, CACHE_LINE, "data")
    with b.if_then(b.not_(held)):
        line = b.offset(host, b.sub(0, inside))
        b.put(record, CACHE_LINE, "tag", tag)
        b.put(record, CACHE_LINE, "filled", serial)
        b.put(record, CACHE_LINE, "from_stale", 0)
        with b.if_else(b.equal(array, 0)) as (from_memory, from_array):
            with from_memory:
                _copy(b, kept, line, I64(shape.line_bytes))
            with from_array:
                b.call(_fill_helper(b, shape), [array, record, b.sub(va, inside), line, serial])
    _copy(b, data, b.offset(kept, inside), size)
    b.ret(_differ(b, data, host, size))
    b.done()


def _fill_helper(b: CodeBuilder, shape: CacheShape) -> ir.Function:
    """Return a function void(array, record, VA, host, serial) that fills the line of a cache from GL1, which a
    miss fills from memory.
    """

    def build(function: ir.Function) -> None:
        b = HelperBuilder(function)
        array, record, va, host, serial = function.args
        source, tag, held = _line(b, array, va, ARRAY_CACHE)
        inside = b.and_(va, ARRAY_CACHE.line_bytes - 1)
        with b.if_then(b.not_(held)):
            _copy(
                b, b.at(source, CACHE_LINE, "data"), b.offset(host, b.sub(0, inside)), I64(ARRAY_CACHE.line_bytes)
            )
            b.put(source, CACHE_LINE, "tag", tag)
            b.put(source, CACHE_LINE, "filled", serial)
        part, size = b.offset(b.at(source, CACHE_LINE, "data"), inside), I64(shape.line_bytes)
        _copy(b, b.at(record, CACHE_LINE, "data"), part, size)
        with b.if_then(_differ(b, part, host, size)):
            b.put(record, CACHE_LINE, "filled", b.get(source, CACHE_LINE, "filled"))
            b.put(record, CACHE_LINE, "from_stale", 1)
        b.ret_void()
        b.done()

    return b.helper(f"zrt.filled{shape.line_bytes}", _FILLED, build)


def _differ(b: CodeBuilder, one: ir.Value, other: ir.Value, size: ir.Value) -> ir.Value:
    """Return i1: the bytes differ."""
    differs = b.local(I8, 0)

    def compare(index: ir.Value) -> None:
        first, second = (b.load(b.offset(item, index), typ=I8) for item in (one, other))
        b.store(b.or_(b.load(differs, typ=I8), b.xor(first, second)), differs)

    b.repeat(size, compare)
    return b.unequal(b.load(differs, typ=I8), 0)


def update_helper(b: CodeBuilder) -> ir.Function:
    """Return a function void(cache, VA, data, bytes) that writes a store of the cache's own waves, already in
    memory, to cached lines. A store does not allocate lines.
    """

    def build(function: ir.Function) -> None:
        b = HelperBuilder(function)
        helper = b.helper("zrt.updated.line", _UPDATED, _updated_line)
        cache, va, data, size = function.args
        first, rest = _parts(b, va, size, VECTOR_CACHE)
        b.call(helper, [cache, va, data, first])
        with b.if_then(b.unequal(rest, 0), likely=False):
            b.call(helper, [cache, b.add(va, first), b.offset(data, first), rest])
        b.ret_void()
        b.done()

    return b.helper("zrt.updated", _UPDATED, build)


def _updated_line(function: ir.Function) -> None:
    b = HelperBuilder(function)
    cache, va, data, size = function.args
    record, _, held = _line(b, cache, va, VECTOR_CACHE)
    with b.if_then(held):
        inside = b.and_(va, VECTOR_CACHE.line_bytes - 1)
        _copy(b, b.offset(b.at(record, CACHE_LINE, "data"), inside), data, size)
    b.ret_void()
    b.done()


def drop_helper(b: CodeBuilder, shape: CacheShape) -> ir.Function:
    """Return a function void(cache, VA) that drops the line of an access that bypassed the cache."""

    def build(function: ir.Function) -> None:
        b = HelperBuilder(function)
        cache, va = function.args
        record, _, held = _line(b, cache, va, shape)
        with b.if_then(held):
            b.put(record, CACHE_LINE, "tag", 0)
        b.ret_void()
        b.done()

    return b.helper(f"zrt.dropped{shape.lines}", _DROPPED, build)


def invalidate(e: Emitter, name: str, shape: CacheShape) -> None:
    """Invalidate the wave's cache, given by a field of the context."""

    def build(function: ir.Function) -> None:
        b = HelperBuilder(function)
        [cache] = function.args

        def drop(index: ir.Value) -> None:
            b.put(b.pointer(b.add(cache, b.mul(index, CACHE_LINE.size_bytes))), CACHE_LINE, "tag", 0)

        b.repeat(shape.lines, drop)
        b.ret_void()
        b.done()

    emptied = e.b.helper(f"zrt.emptied{shape.lines}", _EMPTIED, build)
    cache = e.frame.field(name)
    with e.b.cold(e.b.unequal(cache, 0)):
        e.b.call(emptied, [cache])


def _line(b: CodeBuilder, cache: ir.Value, va: ir.Value, shape: CacheShape) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return (record for the line, its tag, i1: hit)."""
    tag = b.or_(b.and_(va, I64(-shape.line_bytes)), _HELD)
    number = b.urem(b.udiv(va, shape.line_bytes), shape.lines)
    record = b.pointer(b.add(cache, b.mul(number, CACHE_LINE.size_bytes)))
    return record, tag, b.equal(b.get(record, CACHE_LINE, "tag"), tag)


def _parts(b: CodeBuilder, va: ir.Value, size: ir.Value, shape: CacheShape) -> tuple[ir.Value, ir.Value]:
    """Return the number of bytes in the first line and in the next."""
    room = b.sub(I64(shape.line_bytes), b.and_(va, shape.line_bytes - 1))
    first = b.select(b.below(size, room), size, room)
    return first, b.sub(size, first)


def _copy(b: CodeBuilder, to: ir.Value, source: ir.Value, size: ir.Value) -> None:
    b.intrinsic("llvm.memcpy", VOID, to, source, size, I1(0), types=(POINTER, POINTER, I64))
