"""DS: atomics of a workgroup's LDS, exchanges, and counters of active lanes."""

from __future__ import annotations

from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I32, I64
from zinc_rt.sim.shader.memory import access, lds, lds_access
from zinc_rt.sim.shader.memory.atomic_operations import COMMON
from zinc_rt.sim.shader.memory.loads_stores import set_loaded, stored

# name: operation, bytes. Those with "rtn" return the old value
_ATOMICS: dict[str, tuple[str, int]] = {
    **COMMON,
    "min_num_f64": ("min_num", 8),
    "max_num_f64": ("max_num", 8),
    "min_f64": ("min_f", 8),
    "max_f64": ("max_f", 8),
    "cmpstore_f32": ("cmpswap_f", 4),
    "cmpstore_f64": ("cmpswap_f", 8),
    **{f"{name}_{k}{8 * size}": (operation, size)
       for name, k, operation in (("rsub", "u", "rsub"), ("mskor", "b", "mskor"), ("cmpstore", "b", "cmpswap"))
       for size in (4, 8)},
}  # fmt: skip
_ONLY_RETURNING = {
    "wrap_rtn_b32": ("wrap", 4),
    "storexchg_rtn_b32": ("swap", 4),
    "storexchg_rtn_b64": ("swap", 8),
    "condxchg32_rtn_b64": ("condxchg", 8),
}


def _returning(name: str) -> str:
    """Return the name of the returning form: add_u32 becomes add_rtn_u32, pk_add_f16 becomes pk_add_rtn_f16."""
    stem, _, kind = name.rpartition("_")
    return f"{stem}_rtn_{kind}"


def change_lanes(
    e: Emitter,
    operation: str,
    low: ir.Value,
    data: list[ir.Value],
    second: list[ir.Value],
    size_bytes: int,
    lanes: ir.Value | None = None,
) -> list[ir.Value]:
    """Emit an atomic and return the old dwords."""
    e.b.store(access.join_dwords(e, data, size_bytes), access.buffers(e)[1], align=1)
    if second:
        e.b.store(access.join_dwords(e, second, size_bytes), lds.second_buffer(e), align=1)
    lds.call_lanes(e, lds_access.lds_atomic(e, operation, size_bytes), e.b.zext(low, e.b.lanes(I64)), lanes)
    return access.split_dwords(e, access.buffers(e)[1], size_bytes)


def _atomic(e: Emitter, i: Instruction, *, operation: str, size_bytes: int, returns: bool) -> None:
    operands = list(i.operands)
    destination = operands.pop(0) if returns else None
    address, *data = operands
    values = [stored(e, item, size_bytes, False) for item in data]
    second = values[1] if len(values) > 1 else []
    old = change_lanes(e, operation, lds.lds_address(e, address, e.offset()), values[0], second, size_bytes)
    if destination is not None:
        set_loaded(e, destination, old, size_bytes, False, None)


def _exchange_two(e: Emitter, i: Instruction, *, size_bytes: int, stride: int) -> None:
    destination, address, *data = i.operands
    values = [stored(e, item, size_bytes, False) for item in data]
    places = [lds.lds_address(e, address, moved) for moved in lds.offsets(e, size_bytes, stride)]
    old: list[ir.Value] = []
    for location, value in zip(places, values, strict=True):
        old += change_lanes(e, "swap", location, value, [], size_bytes)
    set_loaded(e, destination, old, size_bytes, False, None)


def _append(e: Emitter, i: Instruction, *, operation: str) -> None:
    """Emit one atomic of the first active lane with the number of active lanes; all active lanes get the old
    value.
    """
    b = e.b
    bits = e.exec.bits()
    lanes = b.resize(bits, 64)
    count = b.intrinsic("llvm.ctpop", I64, lanes)
    lowest = b.and_(lanes, b.sub(0, lanes))
    data = access.buffers(e)[1]
    b.store(b.splat(b.trunc(count, I32)), data, align=1)
    addresses = b.splat(b.zext(e.offset(), I64))
    lds.call_lanes(e, lds_access.lds_atomic(e, operation, 4), addresses, lowest)
    old = b.first_lane(b.load(data, typ=b.lanes(I32), align=4), bits)
    e.regs.write_vgpr(i.operands[0].index, b.splat(old))


EMIT: dict[str, EmitFunction] = {
    **{
        f"ds_storexchg_2addr_{stride}rtn_{kind}": partial(
            _exchange_two, size_bytes=size, stride=lds.STRIDE if stride else 1
        )
        for stride in ("", "stride64_")
        for kind, size in (("b32", 4), ("b64", 8))
    },
    **{
        f"ds_{name}": partial(_atomic, operation=operation, size_bytes=size, returns=False)
        for name, (operation, size) in _ATOMICS.items()
    },
    **{
        f"ds_{_returning(name)}": partial(_atomic, operation=operation, size_bytes=size, returns=True)
        for name, (operation, size) in _ATOMICS.items()
    },
    **{
        f"ds_{name}": partial(_atomic, operation=operation, size_bytes=size, returns=True)
        for name, (operation, size) in _ONLY_RETURNING.items()
    },
    "ds_append": partial(_append, operation="add"),
    "ds_consume": partial(_append, operation="sub"),
}
