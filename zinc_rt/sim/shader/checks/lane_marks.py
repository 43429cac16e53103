"""Lanes that violated a rule during a helper, with the address of the first; reported when the helper returns."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.reports import record_helper
from zinc_rt.sim.shader.emit.values import I32, I64
from zinc_rt.sim.shader.layout import CONTEXT

_OTHER = ("race_entry", "race_site")


def find_first_site(e: Emitter, rules: Sequence[str], text: str = "") -> int:
    """Return the site number of the first rule for this instruction; the other rules follow it."""
    numbers = [e.reports.site(rule, text) for rule in rules]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers[0]


class Marks:
    """Lanes that violated a rule and the address of the first, for `count` rules. `races`: rules whose first
    violation is reported with the other access, which is in the context at the mark.
    """

    def __init__(
        self, b: CodeBuilder, count: int, context: ir.Value | None = None, races: Sequence[int] = ()
    ) -> None:
        self.b, self.context = b, context
        self._others = {rule: (b.local(I64, 0), b.local(I32, 0)) for rule in races}
        self._lanes = [b.local(I64, 0) for _ in range(count)]
        self._first = [b.local(I64, 0) for _ in range(count)]

    def mark(self, rule: int, lane: ir.Value, address: ir.Value) -> None:
        """Mark a violation of the rule by the lane (i64) at the address."""
        b = self.b
        none = b.equal(b.load(self._lanes[rule], typ=I64), 0)
        b.store(b.select(none, address, b.load(self._first[rule], typ=I64)), self._first[rule])
        if rule in self._others:
            for location, field, of in zip(self._others[rule], _OTHER, (I64, I32), strict=True):
                known = b.load(location, typ=of)
                b.store(b.select(none, b.get(self.context, CONTEXT, field), known), location)
        b.set_bit(self._lanes[rule], lane)

    def any(self, rule: int) -> ir.Value:
        return self.b.unequal(self.lanes(rule), 0)

    def lanes(self, rule: int) -> ir.Value:
        return self.b.load(self._lanes[rule], typ=I64)

    def first(self, rule: int) -> ir.Value:
        return self.b.load(self._first[rule], typ=I64)

    def report(self, state: ir.Value, context: ir.Value, site: ir.Value, *, scalar: bool = False) -> None:
        """Report the marked violations. `site` is the i32 site of the first rule. `scalar`: the marks are not
        lanes.
        """
        b = self.b
        record = record_helper(b)
        for rule in range(len(self._lanes)):
            with b.if_then(self.any(rule), likely=False):
                lanes = I64(0) if scalar else self.lanes(rule)
                if rule in self._others:
                    for location, field, of in zip(self._others[rule], _OTHER, (I64, I32), strict=True):
                        b.put(context, CONTEXT, field, b.load(location, typ=of))
                b.call(record, [state, context, b.add(site, rule), lanes, self.first(rule)])
