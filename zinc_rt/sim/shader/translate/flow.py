"""Control flow between blocks: edges that consume fuel, suspension, resumption."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa.control_flow import Flow
from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.quads import WORDS, Quads
from zinc_rt.sim.shader.emit.reports import Reports
from zinc_rt.sim.shader.emit.slots import RegisterSlots
from zinc_rt.sim.shader.emit.values import I1, I32, I64, constant
from zinc_rt.sim.shader.layout import ALIGNMENT, EXEC_HI, EXEC_LO, SCC, STATE, VGPR_LIMIT, Status
from zinc_rt.sim.shader.translate.analysis import Analysis


class BlockFlow:
    """The blocks of one function. In the first pass, without `analysis`, registers are not saved or loaded."""

    def __init__(
        self,
        slots: RegisterSlots,
        quads: Quads,
        reports: Reports,
        graph: Flow,
        analysis: Analysis | None,
        vgprs: int,
    ) -> None:
        self._slots, self._quads, self._reports = slots, quads, reports
        self._frame: Frame = slots.frame
        self._b = slots.frame.b
        self.graph, self.analysis, self.vgprs = graph, analysis, vgprs
        self.blocks = {start: self._b.append_basic_block(f"at.{start:x}") for start in graph.blocks}
        self._edges: dict[tuple[int, int], ir.Block] = {}
        self._suspensions: dict[tuple[int, Status], ir.Block] = {}
        self._resumes: dict[int, int] = {}  # block start -> state.resume
        self._counts = [(start, len(block.instructions)) for start, block in graph.blocks.items()]

    def edge(self, target: int, pc: int) -> ir.Block:
        """Return the target block of a branch at `pc` to `target`; backward branches go through a fuel check."""
        if target > pc:
            return self.blocks[target]
        if (target, pc) not in self._edges:
            self._edges[target, pc] = self._backward(target, pc)
        return self._edges[target, pc]

    def _backward(self, target: int, pc: int) -> ir.Block:
        block = self._b.append_basic_block(f"back.{pc:x}")
        cost = sum(count for start, count in self._counts if target <= start <= pc)
        with self._b.goto_block(block):
            left = self._b.sub(self._b.load(self._frame.fuel, typ=I64), max(cost, 1))
            self._b.store(left, self._frame.fuel)
            empty = self._b.icmp_signed("<", left, 0)
            branch = self._b.cbranch(empty, self.suspension(target, Status.FUEL), self.blocks[target])
            branch.set_weights([1, 1 << 20])
        return block

    def jump(self, offset: ir.Value, pc: int) -> None:
        """Jump to a byte offset (i64) known only at run time."""
        unknown = self._b.append_basic_block("unknown")
        switch = self._b.switch(offset, unknown)
        for location in self.graph.indirect:
            switch.add_case(constant(location, I64), self.edge(location, pc))
        self._b.position_at_end(unknown)
        self._reports.illegal("jumps to an address that is neither a return address nor relative to s_getpc_b64")

    def suspension(self, target: int, status: Status) -> ir.Block:
        """Return a block that saves the registers live at `target` and returns; the next call resumes the wave
        there.
        """
        suspension = self._suspensions.get((target, status))
        if suspension is None:
            suspension = self._suspensions[target, status] = self._b.append_basic_block(f"suspend.{target:x}")
            with self._b.goto_block(suspension):
                self._save(target)
                self._frame.set_state_field("resume", self._resumes.setdefault(target, len(self._resumes) + 1))
                pc, self._frame.pc = self._frame.pc, target
                self._reports.leave(status)
                self._frame.pc = pc
        return suspension

    def start(self, also: Callable[[], None] | None = None) -> None:
        """Finish the function's entry: load registers of the frame and `also`, then branch to the resume point."""
        with self._b.goto_block(self._frame.first):
            self._b.store(self._frame.field("fuel"), self._frame.fuel)
            if also is not None:
                also()
            unknown = self._b.append_basic_block("nowhere")
            switch = self._b.switch(self._frame.state_field("resume"), unknown)
            for start, number in ((self.graph.entry, 0), *self._resumes.items()):
                block = self._b.append_basic_block(f"resume.{number}")
                switch.add_case(constant(number), block)
                with self._b.goto_block(block):
                    self._load(start, first=number == 0)
                    self._b.branch(self.blocks[start])
            self._b.position_at_end(unknown)
            self._b.unreachable()
        with self._b.goto_entry_block():
            self._b.branch(self._frame.first)

    # --- live registers

    def _live(self, start: int) -> list[int]:
        if self.analysis is None:
            return []
        live = self.analysis.live[start]
        return [key for key in range(live.bit_length()) if live >> key & 1]

    def _vgpr(self, key: int) -> ir.Value:
        return self._b.offset(self._frame.state, STATE.size_bytes + key * self._b.wave * 4)

    def _save(self, start: int) -> None:
        for key in self._live(start):
            if key < VGPR_LIMIT:
                self._b.store(self._quads.held(start, key), self._vgpr(key), align=ALIGNMENT)
            elif key == VGPR_LIMIT + SCC:
                self._frame.set_state_field("scc", self._b.zext(self._slots.load(key), I32))
            else:
                self._frame.set_state_field("sgprs", self._slots.load(key), key - VGPR_LIMIT)
            if self._slots.tracked(key):
                self._save_undefined(key)

    def _save_undefined(self, key: int) -> None:
        bits = self._slots.load_undefined(key)
        if key < VGPR_LIMIT:
            self._b.store(bits, self._vgpr(self.vgprs + key), align=ALIGNMENT)
        else:
            self._frame.set_state_field("sgpr_undefined", self._b.resize(bits, 32), key - VGPR_LIMIT)

    def _load(self, start: int, *, first: bool) -> None:
        """Load registers at a block's start. `first`: no code ran before, so initial values are known and not
        loaded from the state.
        """
        full = self._starts_full(start)
        at_start = self._quads.at_start(start)
        for quad in sorted(at_start):
            self._quads.store(quad, [self._load_vgpr(key) for key in range(quad, quad + WORDS)])
        for key in self._live(start):
            if not any(quad <= key < quad + WORDS for quad in at_start):
                self._slots.store(key, self._saved(key, full))
            if self._slots.tracked(key):
                bits = self._undefined_first(key, full) if first else self._saved_undefined(key)
                self._slots.store_undefined(key, bits)

    def _load_vgpr(self, key: int) -> ir.Value:
        return self._b.load(self._vgpr(key), typ=self._b.lanes(I32), align=ALIGNMENT)

    def _saved(self, key: int, full: bool) -> ir.Value:
        if key < VGPR_LIMIT:
            return self._load_vgpr(key)
        if key == VGPR_LIMIT + SCC:
            return self._b.trunc(self._frame.state_field("scc"), I1)
        if full and (key == VGPR_LIMIT + EXEC_LO or (self._b.wave == 64 and key == VGPR_LIMIT + EXEC_HI)):
            return constant(-1)
        return self._frame.state_field("sgprs", key - VGPR_LIMIT)

    def _undefined_first(self, key: int, full: bool) -> ir.Value:
        of = self._slots.type_of(key)
        if key >= VGPR_LIMIT:
            assert self.analysis is not None
            return constant(0 if self.analysis.at_start >> key & 1 else -1, of)
        if key or full:
            return constant(-1 if key else 0, of)
        lanes = [self._frame.state_field("sgprs", EXEC_LO + index) for index in range(self._b.wave // 32)]
        return self._b.select(self._b.bitcast(self._b.join(lanes), self._b.lanes(I1)), constant(0, of), -1)

    def _saved_undefined(self, key: int) -> ir.Value:
        if key < VGPR_LIMIT:
            return self._load_vgpr(self.vgprs + key)
        return self._b.resize(
            self._frame.state_field("sgpr_undefined", key - VGPR_LIMIT), self._slots.type_of(key).width
        )

    def _starts_full(self, start: int) -> bool:
        code = self.graph.blocks[start].instructions
        return bool(self.analysis and code and (start, code[0][0]) in self.analysis.exec_full)
