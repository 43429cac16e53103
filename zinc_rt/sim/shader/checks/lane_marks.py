"""Which lanes broke which rule during a helper, and the address of the first: reported at the helper's end."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit import reports
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.routine import I32, I64, Routine


def first_site(e: Emitter, rules: Sequence[str], text: str = "") -> int:
    """The number of the first rule's site of this instruction; the others' follow it."""
    numbers = [e.site(rule, text) for rule in rules]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers[0]


class Marks:
    """Of `count` rules."""

    def __init__(self, e: Emitter, r: Routine, count: int) -> None:
        self._e, self._r = e, r
        self._lanes = [r.local(I64, 0) for _ in range(count)]
        self._first = [r.local(I64, 0) for _ in range(count)]

    def mark(self, rule: int, lane: ir.Value, address: ir.Value) -> None:
        """The lane (i64) broke the rule at that address."""
        r = self._r
        none = r.equal(r.load(self._lanes[rule], I64), 0)
        r.b.store(r.b.select(none, address, r.load(self._first[rule], I64)), self._first[rule])
        r.note(self._lanes[rule], lane)

    def any(self, rule: int) -> ir.Value:
        return self._r.b.icmp_unsigned("!=", self.lanes(rule), I64(0))

    def lanes(self, rule: int) -> ir.Value:
        return self._r.load(self._lanes[rule], I64)

    def first(self, rule: int) -> ir.Value:
        return self._r.load(self._first[rule], I64)

    def report(self, state: ir.Value, context: ir.Value, site: ir.Value, *, scalar: bool = False) -> None:
        """`site`: i32, of the first rule. `scalar`: what was marked are no lanes."""
        r, b = self._r, self._r.b
        record = self._e.helper("zrt.report", reports.REPORT, reports.build)
        for rule in range(len(self._lanes)):
            with r.when(self.any(rule), likely=False):
                lanes = I64(0) if scalar else self.lanes(rule)
                b.call(record, [state, context, b.add(site, I32(rule)), lanes, self.first(rule)])
