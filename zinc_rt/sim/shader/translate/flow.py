"""How control goes from block to block: edges that cost fuel, suspensions, where a wave goes on."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa.control_flow import Flow
from zinc_rt.sim.shader.emit.emitter import I1, I32, I64, Emitter
from zinc_rt.sim.shader.emit.quads import WORDS
from zinc_rt.sim.shader.layout import ALIGNMENT, EXEC_HI, EXEC_LO, SCC, STATE, VGPR_LIMIT, Status
from zinc_rt.sim.shader.translate.analysis import Analysis


class BlockFlow:
    """The blocks of one function. In the first pass, without `analysis`, nothing is saved or loaded."""

    def __init__(self, e: Emitter, graph: Flow, analysis: Analysis | None) -> None:
        self.e, self.graph, self.analysis = e, graph, analysis
        self.blocks = {start: e.block(f"at.{start:x}") for start in graph.blocks}
        self._edges: dict[tuple[int, int], ir.Block] = {}
        self._suspensions: dict[tuple[int, Status], ir.Block] = {}
        self._resumes: dict[int, int] = {}  # block start -> state.resume
        self._counts = [(start, len(block.instructions)) for start, block in graph.blocks.items()]

    def edge(self, target: int, pc: int) -> ir.Block:
        """Where a branch at `pc` to `target` goes: backwards by way of the fuel."""
        if target > pc:
            return self.blocks[target]
        if (target, pc) not in self._edges:
            self._edges[target, pc] = self._backward(target, pc)
        return self._edges[target, pc]

    def _backward(self, target: int, pc: int) -> ir.Block:
        e = self.e
        block = e.block(f"back.{pc:x}")
        cost = sum(count for start, count in self._counts if target <= start <= pc)
        with e.b.goto_block(block):
            left = e.b.sub(e.load(e.fuel, I64), e.constant(max(cost, 1), I64))
            e.b.store(left, e.fuel)
            empty = e.b.icmp_signed("<", left, e.constant(0, I64))
            branch = e.b.cbranch(empty, self.suspension(target, Status.FUEL), self.blocks[target])
            branch.set_weights([1, 1 << 20])
        return block

    def jump(self, offset: ir.Value, pc: int) -> None:
        """To a byte offset (i64) that is known at run time only."""
        e = self.e
        unknown = e.block("unknown")
        switch = e.b.switch(offset, unknown)
        for place in self.graph.indirect:
            switch.add_case(e.constant(place, I64), self.edge(place, pc))
        e.b.position_at_end(unknown)
        e.illegal("jumps to an address that is no return address and not relative to s_getpc_b64")

    def suspension(self, target: int, status: Status) -> ir.Block:
        """A block that saves what is live at `target` and returns; called again, the wave goes on there."""
        e = self.e
        found = self._suspensions.get((target, status))
        if found is None:
            found = self._suspensions[target, status] = e.block(f"suspend.{target:x}")
            with e.b.goto_block(found):
                self._save(target)
                e.set_state_field("resume", self._resumes.setdefault(target, len(self._resumes) + 1))
                pc, e.pc = e.pc, target
                e.leave(status)
                e.pc = pc
        return found

    def start(self, also: Callable[[], None] | None = None) -> None:
        """Ends the function's first blocks: registers of the frame, `also`, then where to go on."""
        e = self.e
        with e.b.goto_block(e.first):
            e.b.store(e.field("fuel"), e.fuel)
            if also is not None:
                also()
            unknown = e.block("nowhere")
            switch = e.b.switch(e.state_field("resume"), unknown)
            for start, number in ((self.graph.entry, 0), *self._resumes.items()):
                block = e.block(f"resume.{number}")
                switch.add_case(e.constant(number), block)
                with e.b.goto_block(block):
                    self._load(start, first=number == 0)
                    e.b.branch(self.blocks[start])
            e.b.position_at_end(unknown)
            e.b.unreachable()
        e.allocas.branch(e.first)

    # --- live registers

    def _live(self, start: int) -> list[int]:
        if self.analysis is None:
            return []
        live = self.analysis.live[start]
        return [key for key in range(live.bit_length()) if live >> key & 1]

    def _vgpr(self, key: int) -> ir.Value:
        return self.e.offset(self.e.state, STATE.size_bytes + key * self.e.wave * 4)

    def _save(self, start: int) -> None:
        e = self.e
        for key in self._live(start):
            if key < VGPR_LIMIT:
                e.b.store(e.quads.held(start, key), self._vgpr(key), align=ALIGNMENT)
            elif key == VGPR_LIMIT + SCC:
                e.set_state_field("scc", e.b.zext(e.load(e.register(key), I1), I32))
            else:
                e.set_state_field("sgprs", e.load(e.register(key), I32), key - VGPR_LIMIT)
            if e.facts.tracked >> key & 1:
                self._save_written(key)

    def _save_written(self, key: int) -> None:
        e = self.e
        if key < VGPR_LIMIT:
            e.set_state_field("vgpr_written", e.resize(e.load(e.written(key), e.mask_bits), 64), key)
        else:
            value = e.b.zext(e.load(e.written(key), I1), ir.IntType(8))
            e.set_state_field("sgpr_written", value, key - VGPR_LIMIT)

    def _load(self, start: int, *, first: bool) -> None:
        """`first`: nothing ran before, so what is written is known and not in the state."""
        e = self.e
        full = self._starts_full(start)
        whole = e.quads.at_start(start)
        for quad in sorted(whole):
            members = range(quad, quad + WORDS)
            e.quads.store(quad, [e.load(self._vgpr(key), e.lanes(I32), align=ALIGNMENT) for key in members])
        for key in self._live(start):
            if any(quad <= key < quad + WORDS for quad in whole):
                value = None
            elif key < VGPR_LIMIT:
                value = e.load(self._vgpr(key), e.lanes(I32), align=ALIGNMENT)
            elif key == VGPR_LIMIT + SCC:
                value = e.b.trunc(e.state_field("scc"), I1)
            elif full and (key == VGPR_LIMIT + EXEC_LO or (e.wave == 64 and key == VGPR_LIMIT + EXEC_HI)):
                value = e.constant(-1)
            else:
                value = e.state_field("sgprs", key - VGPR_LIMIT)
            if value is not None:
                e.b.store(value, e.register(key))
            if e.facts.tracked >> key & 1:
                e.b.store(self._written_first(key, full) if first else self._load_written(key), e.written(key))

    def _written_first(self, key: int, full: bool) -> ir.Value:
        e = self.e
        if key >= VGPR_LIMIT:
            assert self.analysis is not None
            return e.constant(self.analysis.at_start >> key & 1, I1)
        if key or full:
            return e.constant(0 if key else -1, e.mask_bits)
        return e.join([e.state_field("sgprs", EXEC_LO + at) for at in range(e.wave // 32)])

    def _load_written(self, key: int) -> ir.Value:
        e = self.e
        if key < VGPR_LIMIT:
            return e.resize(e.state_field("vgpr_written", key), e.wave)
        return e.b.trunc(e.state_field("sgpr_written", key - VGPR_LIMIT), I1)

    def _starts_full(self, start: int) -> bool:
        code = self.graph.blocks[start].instructions
        return bool(self.analysis and code and (start, code[0][0]) in self.analysis.exec_full)
