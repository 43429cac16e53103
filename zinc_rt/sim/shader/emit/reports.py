"""Emission of findings, faults and wave ends, and the helper that records a finding."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.exec_mask import ExecMask
from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.values import I32, I64, POINTER, VOID, constant
from zinc_rt.sim.shader.layout import (
    CONTEXT,
    FINDING,
    FINDINGS_PER_SITE,
    SITE_STATE,
    STATE,
    RecordLayout,
    Site,
    Status,
    WaveAccess,
)

REPORT = ir.FunctionType(VOID, [POINTER, POINTER, I32, I64, I64])
"""(state, context, site, lanes, address)"""


class Reports:
    """Reports and exits of a wave. `sites` is stored in the Translation."""

    def __init__(self, frame: Frame, exec_mask: ExecMask) -> None:
        self._frame, self._exec, self._b = frame, exec_mask, frame.b
        self.sites: list[Site] = []
        self._numbers: dict[Site, int] = {}

    # --- ends

    def leave(self, status: Status) -> None:
        """Return `status`; live registers are not saved, because the wave does not continue."""
        self._frame.leave(status)

    def stop(self, status: Status, rule: str, text: str) -> None:
        """End the wave with a message: ILLEGAL or HALT."""
        self._frame.set_state_field("site", self.site_number(rule, text))
        self.leave(status)

    def illegal(self, text: str) -> None:
        """End the wave with ILLEGAL; `text` continues "the instruction …"."""
        self.stop(Status.ILLEGAL, "illegal", text)

    def fault(self, lanes: ir.Value, address: ir.Value, access: WaveAccess) -> None:
        """End the wave with a page fault of the lanes in <W x i1>, at <W x i64> (or at one i64)."""
        bits = self._b.bits(lanes)
        with self._b.cold(self._b.unequal(bits, 0)):
            first_lane = self._b.first_lane(address, bits) if isinstance(address.type, ir.VectorType) else address
            self._frame.set_field("fault_va", first_lane)
            self._frame.set_field("fault_lanes", self._b.resize(bits, 64))
            self._frame.set_field("fault_access", constant(int(access)))
            self.leave(Status.FAULT)

    # --- findings

    def site(self, rule: str, text: str = "") -> int:
        """Return the index of (this instruction, rule, text) in the site table."""
        site = Site(self._frame.pc, rule, text)
        if site not in self._numbers:
            if rule not in RULES:
                raise ValueError(f"unknown rule {rule!r}: add a row to zinc_rt/host/sanitizer_rules.py")
            self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[site]

    def site_number(self, rule: str, text: str = "") -> ir.Value:
        """Return `site` as an i32 for emitted code."""
        return self._frame.numbered("site", self.site(rule, text))

    def report(self, rule: str, lanes: ir.Value, *, address: ir.Value | None = None, text: str = "") -> None:
        """Report a finding for the lanes in <W x i1> (or iW), already within EXEC; execution continues.

        `address` is <W x i64>; the report shows that of the first lane.
        """
        bits = self._b.bits(lanes)
        with self._b.cold(self._b.unequal(bits, 0)):
            self._record(rule, bits, address, text)

    def report_if(self, rule: str, condition: ir.Value, text: str = "") -> None:
        """Report a finding for all active lanes if the i1 is true (scalar form)."""
        with self._b.cold(condition):
            self._record(rule, self._exec.bits(), None, text)

    def _record(self, rule: str, bits: ir.Value, address: ir.Value | None, text: str) -> None:
        shown = I64(0) if address is None else self._b.first_lane(address, bits)
        site = self.site_number(rule, text)
        arguments = [self._frame.state, self._frame.context, site, self._b.resize(bits, 64), shown]
        self._b.call(record_helper(self._b), arguments)


def record_helper(b: CodeBuilder) -> ir.Function:
    """Return the function of type REPORT."""
    return b.helper("zrt.report", REPORT, _build)


def _build(function: ir.Function) -> None:
    """Emit the recorder: one record per site for consecutive hits of a wave, at most FINDINGS_PER_SITE per
    site, and only the first of a site once half of the buffer is used.
    """
    function.attributes.add("cold")
    state, context, site, lanes, address = function.args
    b = CodeBuilder(function.append_basic_block("entry"))

    def element(base: ir.Value, layout: RecordLayout, index: ir.Value) -> ir.Value:
        return b.offset(base, b.mul(b.zext(index, I64), layout.size_bytes))

    wave, group = b.get(state, STATE, "wave_in_group"), b.get(state, STATE, "group")
    mine = b.add(wave, 1)
    output = element(b.get(context, CONTEXT, "sites"), SITE_STATE, site)
    count = b.get(output, SITE_STATE, "count")
    second = b.and_(
        b.equal(b.get(output, SITE_STATE, "wave"), mine),
        b.equal(b.get(output, SITE_STATE, "group"), group),
    )
    index = b.get(context, CONTEXT, "findings_count")
    is_scarce = b.icmp_unsigned(">=", b.mul(index, 2), b.get(context, CONTEXT, "findings_capacity"))
    full = b.icmp_unsigned(">=", count, b.select(is_scarce, I32(1), I32(FINDINGS_PER_SITE)))
    with b.if_then(b.not_(b.or_(second, full))):
        for name, value in (("count", b.add(count, 1)), ("wave", mine), ("group", group)):
            b.put(output, SITE_STATE, name, value)
        b.put(context, CONTEXT, "findings_count", b.add(index, 1))
        with b.if_then(b.below(index, b.get(context, CONTEXT, "findings_capacity"))):
            record = element(b.get(context, CONTEXT, "findings"), FINDING, index)
            values = {"site": site, "wave": wave, "group": group, "lanes": lanes, "address": address}
            for name in ("entry", "site"):
                values[f"other_{name}"] = b.get(context, CONTEXT, f"race_{name}")
            for name, value in values.items():
                b.put(record, FINDING, name, value)
    b.ret_void()
