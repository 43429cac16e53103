"""Findings, faults and ends of a wave: what is emitted where they happen, and the helper that records one."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.values import I8, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import (
    CONTEXT,
    FINDING,
    FINDINGS_PER_SITE,
    SITE_STATE,
    STATE,
    Checks,
    RecordLayout,
    Site,
    Status,
    WaveAccess,
)

REPORT = ir.FunctionType(VOID, [POINTER, POINTER, I32, I64, I64])
"""(state, context, site, lanes, address)"""


class Reports(Frame):
    """`pc` is the instruction's being emitted. `sites` and `counts` go into the Translation."""

    def __init__(self, module: ir.Module, name: str, wave: int, checks: Checks) -> None:
        super().__init__(module, name, wave)
        self.checks = checks
        self.pc = 0
        self.sites: list[Site] = []
        self.counts: dict[str, int] = {}
        self._numbers: dict[Site, int] = {}
        self.fuel = self.local(I64, "fuel")

    def exec_bits(self) -> ir.Value:
        """EXEC as an iW."""
        raise NotImplementedError

    # --- ends

    def leave(self, status: Status) -> None:
        """Return `status`; live registers are not saved, for the wave does not go on."""
        self.b.store(self.load(self.fuel, I64), self.field_pointer("fuel"))
        self.set_state_field("pc", self.pc)
        self.set_state_field("status", int(status))
        self.b.ret(self.constant(int(status)))

    def stop(self, status: Status, rule: str, text: str) -> None:
        """End the wave with a sentence: ILLEGAL or HALT."""
        self.set_state_field("site", self.site(rule, text))
        self.leave(status)

    def illegal(self, text: str) -> None:
        """End the wave here: `text` continues "the instruction …"."""
        self.stop(Status.ILLEGAL, "illegal", text)

    def fault(self, lanes: ir.Value, address: ir.Value, access: WaveAccess) -> None:
        """A page fault of the lanes in <W x i1>, at <W x i64> (or at one i64): ends the wave."""
        bits = lanes if lanes.type == self.mask_bits else self.bits(lanes)
        with self.cold(self.b.icmp_unsigned("!=", bits, self.constant(0, self.mask_bits))):
            one = self.first_lane(address, bits) if isinstance(address.type, ir.VectorType) else address
            self.set_field("fault_va", one)
            self.set_field("fault_lanes", self.resize(bits, 64))
            self.set_field("fault_access", self.constant(int(access)))
            self.leave(Status.FAULT)

    # --- findings

    def site(self, rule: str, text: str = "") -> int:
        """Index of (this instruction, rule, text) in the site table."""
        site = Site(self.pc, rule, text)
        if site not in self._numbers:
            self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[site]

    def count(self, kind: str) -> int:
        """The next number of its kind, from 0: memory sites, for instance. The totals are Translation.counts."""
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        return number

    def report(self, rule: str, lanes: ir.Value, *, address: ir.Value | None = None, text: str = "") -> None:
        """A finding for the lanes in <W x i1> (or iW), already within EXEC; execution goes on.

        `address`: <W x i64>, shown of the first lane.
        """
        bits = lanes if lanes.type == self.mask_bits else self.bits(lanes)
        with self.cold(self.b.icmp_unsigned("!=", bits, self.constant(0, self.mask_bits))):
            self._record(rule, bits, address, text)

    def report_if(self, rule: str, condition: ir.Value, text: str = "") -> None:
        """The scalar form: a finding of all active lanes where the i1 holds."""
        with self.cold(condition):
            self._record(rule, self.exec_bits(), None, text)

    def _record(self, rule: str, bits: ir.Value, address: ir.Value | None, text: str) -> None:
        shown = self.constant(0, I64) if address is None else self.first_lane(address, bits)
        record = self.helper("zrt.report", REPORT, build)
        site = self.constant(self.site(rule, text))
        self.b.call(record, [self.state, self.context, site, self.resize(bits, 64), shown])


def build(function: ir.Function) -> None:
    """One record per site and wave in a row, at most FINDINGS_PER_SITE of a site, and what the buffer holds."""
    function.attributes.add("cold")
    state, context, site, lanes, address = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))

    def pointer(base: ir.Value, layout: RecordLayout, name: str) -> ir.Value:
        return b.gep(base, [ir.Constant(I64, layout.fields[name].offset)], source_etype=I8)

    def load(base: ir.Value, layout: RecordLayout, name: str, of: ir.Type = I32) -> ir.Value:
        return b.load(pointer(base, layout, name), typ=of)

    def element(base: ir.Value, layout: RecordLayout, index: ir.Value) -> ir.Value:
        size = b.mul(b.zext(index, I64), ir.Constant(I64, layout.size_bytes))
        return b.gep(base, [size], source_etype=I8)

    wave, group = load(state, STATE, "wave_in_group"), load(state, STATE, "group")
    mine = b.add(wave, ir.Constant(I32, 1))
    said = element(load(context, CONTEXT, "sites", POINTER), SITE_STATE, site)
    count = load(said, SITE_STATE, "count")
    again = b.and_(
        b.icmp_unsigned("==", load(said, SITE_STATE, "wave"), mine),
        b.icmp_unsigned("==", load(said, SITE_STATE, "group"), group),
    )
    full = b.icmp_unsigned(">=", count, ir.Constant(I32, FINDINGS_PER_SITE))
    with b.if_then(b.not_(b.or_(again, full))):
        b.store(b.add(count, ir.Constant(I32, 1)), pointer(said, SITE_STATE, "count"))
        b.store(mine, pointer(said, SITE_STATE, "wave"))
        b.store(group, pointer(said, SITE_STATE, "group"))
        at = load(context, CONTEXT, "findings_count")
        b.store(b.add(at, ir.Constant(I32, 1)), pointer(context, CONTEXT, "findings_count"))
        with b.if_then(b.icmp_unsigned("<", at, load(context, CONTEXT, "findings_capacity"))):
            record = element(load(context, CONTEXT, "findings", POINTER), FINDING, at)
            values = {"site": site, "wave": wave, "group": group, "lanes": lanes, "address": address}
            for name, value in values.items():
                b.store(value, pointer(record, FINDING, name))
    b.ret_void()
