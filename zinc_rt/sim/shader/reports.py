"""The out-of-line helper that records a finding."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.layout import CONTEXT, FINDING, FINDINGS_PER_SITE, SITE_STATE, STATE, Layout

_I8, _I32, _I64, _POINTER = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.PointerType()
REPORT = ir.FunctionType(ir.VoidType(), [_POINTER, _POINTER, _I32, _I64, _I64])
"""(state, context, site, lanes, address)"""


def build(function: ir.Function) -> None:
    """One record per site and wave in a row, at most FINDINGS_PER_SITE of a site, and what the buffer holds."""
    function.attributes.add("cold")
    state, context, site, lanes, address = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))

    def pointer(base: ir.Value, layout: Layout, name: str) -> ir.Value:
        return b.gep(base, [ir.Constant(_I64, layout.fields[name].offset)], source_etype=_I8)

    def load(base: ir.Value, layout: Layout, name: str, of: ir.Type = _I32) -> ir.Value:
        return b.load(pointer(base, layout, name), typ=of)

    def element(base: ir.Value, layout: Layout, index: ir.Value) -> ir.Value:
        size = b.mul(b.zext(index, _I64), ir.Constant(_I64, layout.size_bytes))
        return b.gep(base, [size], source_etype=_I8)

    wave, group = load(state, STATE, "wave_in_group"), load(state, STATE, "group")
    mine = b.add(wave, ir.Constant(_I32, 1))
    said = element(load(context, CONTEXT, "sites", _POINTER), SITE_STATE, site)
    count = load(said, SITE_STATE, "count")
    again = b.and_(
        b.icmp_unsigned("==", load(said, SITE_STATE, "wave"), mine),
        b.icmp_unsigned("==", load(said, SITE_STATE, "group"), group),
    )
    full = b.icmp_unsigned(">=", count, ir.Constant(_I32, FINDINGS_PER_SITE))
    with b.if_then(b.not_(b.or_(again, full))):
        b.store(b.add(count, ir.Constant(_I32, 1)), pointer(said, SITE_STATE, "count"))
        b.store(mine, pointer(said, SITE_STATE, "wave"))
        b.store(group, pointer(said, SITE_STATE, "group"))
        at = load(context, CONTEXT, "findings_count")
        b.store(b.add(at, ir.Constant(_I32, 1)), pointer(context, CONTEXT, "findings_count"))
        with b.if_then(b.icmp_unsigned("<", at, load(context, CONTEXT, "findings_capacity"))):
            record = element(load(context, CONTEXT, "findings", _POINTER), FINDING, at)
            values = {"site": site, "wave": wave, "group": group, "lanes": lanes, "address": address}
            for name, value in values.items():
                b.store(value, pointer(record, FINDING, name))
    b.ret_void()
