"""GLOBAL atomics. Workgroups run on several host threads, so each is a host atomic operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.isa.encodings.cache_policy import returns_previous
from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I1
from zinc_rt.sim.shader.layout import VECTOR_CACHE, WaveAccess
from zinc_rt.sim.shader.memory import access, cached_access
from zinc_rt.sim.shader.memory.access import Addresses
from zinc_rt.sim.shader.memory.atomic_operations import COMMON, OPERATIONS
from zinc_rt.sim.shader.memory.lane_checks import LANES, MISALIGNED, LaneAccesses
from zinc_rt.sim.shader.memory.loads_stores import check_modifiers, global_addresses, set_loaded, stored

ATOMICS: dict[str, tuple[str, int]] = {
    **COMMON,
    "swap_b32": ("swap", 4),
    "swap_b64": ("swap", 8),
    "cmpswap_b32": ("cmpswap", 4),
    "cmpswap_b64": ("cmpswap", 8),
    "cmpswap_f32": ("cmpswap_f", 4),
    "csub_u32": ("sub_clamp", 4),
}
"""name behind "atomic_": operation, bytes"""
TWO = ("cmpswap", "cmpswap_f")  # new value, then the comparison value


def change(
    e: Emitter,
    operation: str,
    at: Addresses,
    data: list[ir.Value],
    size_bytes: int,
    lanes: ir.Value | None = None,
) -> list[ir.Value]:
    """Emit an atomic and return the old dwords. `data` contains the second operand's dwords after the first's."""
    together = access.join_dwords(e, data, len(data) * 4)
    e.b.store(together, access.buffers(e)[1], align=1)
    access.call_lanes(e, lanes_atomic(e, operation, size_bytes), at, access.memory_site(e), lanes)
    old = access.split_dwords(e, access.buffers(e)[1], len(data) * 4)
    return old[: size_bytes // 4]


def lanes_atomic(e: Emitter, operation: str, size_bytes: int) -> ir.Function:
    name = f"zrt.atomic_{operation}{size_bytes}"
    return e.b.helper(name, LANES, lambda f: _Atomic(e, f, operation, size_bytes).build())


class _Atomic(LaneAccesses):
    def __init__(self, e: Emitter, function: ir.Function, operation: str, size_bytes: int) -> None:
        super().__init__(e, function, size_bytes, WaveAccess.ATOMIC)
        self.operation = operation
        self.stride = size_bytes * (2 if operation in TWO else 1)

    def lane_data(self, lane: ir.Value) -> ir.Value:
        return self.b.offset(self.data, self.b.mul(lane, self.stride))

    def build(self) -> None:
        with self.b.if_then(self.b.equal(self.exec, 0)):
            self.b.ret(I1(0))
        self.each(self._change, None)
        self.finish()

    def _change(self, lane: ir.Value, va: ir.Value, host: ir.Value) -> None:
        b, size = self.b, self.size_bytes
        of = ir.IntType(8 * size)
        data = self.lane_data(lane)
        first = b.load(data, typ=of, align=1)
        second = b.load(b.offset(data, size), typ=of, align=1) if self.operation in TWO else of(0)
        old = b.local(of)
        aligned = b.equal(b.and_(va, size - 1), 0)
        with b.if_else(aligned, likely=True) as (yes, no):
            with yes:
                _exchange(b, self.operation, host, first, second, old)
            with no:  # a fault on hardware
                if self.checks.fast:
                    self.marks.mark(MISALIGNED, lane, va)
                b.store(of(0), old)
        b.store(b.load(old, typ=of), data, align=1)
        with b.if_then(b.unequal(self.cache, 0), likely=False):
            b.call(cached_access.drop_helper(b, VECTOR_CACHE), [self.cache, va])
            self.drop_in_array(va)


def _exchange(
    b: CodeBuilder, operation: str, host: ir.Value, first: ir.Value, second: ir.Value, old: ir.Value
) -> None:
    """Emit a compare-and-swap loop that stores the old value to `old`."""
    of = first.type
    size = of.width // 8
    turn, done = b.append_basic_block("turn"), b.append_basic_block("done")
    start = b.load_atomic(host, "monotonic", size, typ=of)
    before = b.block
    b.branch(turn)
    b.position_at_end(turn)
    seen = b.phi(of)
    seen.add_incoming(start, before)
    new = OPERATIONS[operation](b, seen, first, second)
    pair = b.cmpxchg(host, seen, new, "acq_rel", "acquire")
    result = b.extract_value(pair, 0)
    seen.add_incoming(result, b.block)
    b.cbranch(b.extract_value(pair, 1), done, turn)
    b.position_at_end(done)
    b.store(seen, old)


def emit(
    e: Emitter,
    i: Instruction,
    *,
    addresses: Callable[[Emitter, Instruction, list[Operand]], Addresses],
    operation: str,
    size_bytes: int,
) -> None:
    """Emit a global atomic. `addresses` is called with the operands except the destination."""
    check_modifiers(i)
    operands = list(i.operands)
    destination = operands.pop(0) if returns_previous(i) else None
    count = 2 if operation in TWO else 1
    offset = addresses(e, i, operands)
    old = change(e, operation, offset, stored(e, operands[1], size_bytes * count, False), size_bytes)
    if destination is not None:
        set_loaded(e, destination, old, size_bytes, False, None)


def _global(e: Emitter, i: Instruction, operands: list[Operand]) -> Addresses:
    return global_addresses(e, i, operands[0], operands[2])


EMIT: dict[str, EmitFunction] = {
    f"global_atomic_{name}": partial(emit, addresses=_global, operation=operation, size_bytes=size)
    for name, (operation, size) in ATOMICS.items()
}
