"""Translation of one kernel's machine code to LLVM IR: `i32 wave(state, context)`.

Two passes write the same IR. The first determines which registers each instruction touches; the second uses the
resulting analysis (analysis.py).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from zinc_rt.isa.control_flow import Block, Flow, find_control_flow, is_block_end
from zinc_rt.sim.shader.checks.races import find_atomic_loads
from zinc_rt.sim.shader.emit.debug import DebugCalls
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.helpers import KernelModule
from zinc_rt.sim.shader.emit.quads import QuadForms
from zinc_rt.sim.shader.emit.slots import RegisterSlots, Touched, UnprovenReads
from zinc_rt.sim.shader.emit.state_slots import StateSlots
from zinc_rt.sim.shader.emit.trace import Tracer, count_block
from zinc_rt.sim.shader.layout import KernelVariant, Site, Status
from zinc_rt.sim.shader.translate.analysis import Analysis, Records, analyse_kernel
from zinc_rt.sim.shader.translate.control import waits_at_barrier, yields_after
from zinc_rt.sim.shader.translate.float_modes import find_float_modes
from zinc_rt.sim.shader.translate.flow import BlockFlow
from zinc_rt.sim.shader.translate.program import FormProvider, ProgramBuilder, RecordProgram
from zinc_rt.sim.shader.translate.quad_choice import choose_quads
from zinc_rt.sim.shader.translate.semantics import emit_instruction

FUNCTION = "wave"
# Units whose instructions leave memory as it is.
_KEEP_MEMORY = frozenset({"valu", "vopd", "trans", "salu", "load", "smem", "wait", "branch"})


@dataclass(frozen=True, slots=True)
class Translation:
    """A translation. `text` is LLVM IR with the function `function`. `counts`: numbers of items per kind
    allocated by emit functions (memory sites, blocks, …). `blocks`: start of each numbered block, as a byte
    offset. `memory_pcs`: the instruction of each memory site.
    """

    text: str
    function: str
    sites: tuple[Site, ...]
    counts: dict[str, int]
    blocks: tuple[int, ...]
    memory_pcs: tuple[int, ...]


def translate(variant: KernelVariant) -> Translation:
    """Translate a kernel. Unsupported instructions end the wave with Status.ILLEGAL when reached. NaN payloads
    are unspecified.
    """
    with _disable_collection():
        return _translate_variant(variant)


def translated_to_program(variant: KernelVariant, forms: FormProvider) -> RecordProgram:
    """Translate a kernel to records of instruction forms, with the same results as `translate`."""
    with _disable_collection():
        return ProgramBuilder(variant, forms).build()


@contextmanager
def _disable_collection() -> Iterator[None]:
    """Disable garbage collection: translation creates no garbage before its end, and collections would double
    its time.
    """
    with _lock:
        was = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was:
                gc.enable()


_lock = threading.Lock()


def _translate_variant(variant: KernelVariant) -> Translation:
    graph = find_control_flow(variant.code, variant.target, variant.entry, running=True)
    first = _TranslationPass(variant, graph)
    first.run()
    analysis = analyse_kernel(graph, first.records, variant)
    observed = variant.checks.trace or variant.checks.debug
    forms = QuadForms() if observed else choose_quads(graph, analysis.exec_full)
    second = _TranslationPass(variant, graph, analysis, first.records, forms)
    second.run()
    e, module = second.e, second.module
    return Translation(
        text=str(module),
        function=FUNCTION,
        sites=tuple(e.reports.sites),
        counts=e.counts | {"block": len(graph.blocks)},
        blocks=tuple(graph.blocks),
        memory_pcs=tuple(e.memory_pcs),
    )


def find_registers(variant: KernelVariant) -> tuple[Flow, Records, dict[int, int]]:
    """Return the kernel's control flow, the registers touched by each instruction, and the live registers at
    the start of each block.
    """
    with _disable_collection():
        graph = find_control_flow(variant.code, variant.target, variant.entry, running=True)
        first = _TranslationPass(variant, graph)
        first.run()
        return graph, first.records, analyse_kernel(graph, first.records, variant).live


class _TranslationPass:
    def __init__(
        self,
        variant: KernelVariant,
        graph: Flow,
        analysis: Analysis | None = None,
        before: Records | None = None,
        forms: QuadForms | None = None,
    ) -> None:
        """Prepare a pass. `before`: the registers touched by each instruction in an earlier pass."""
        self.graph, self.analysis = graph, analysis
        self.before: Records = before or {}
        unproven = UnprovenReads() if analysis is None else analysis.unproven
        self.module = KernelModule("kernel")
        frame = Frame(self.module, FUNCTION, variant.wave)
        debug = variant.checks.debug
        slots = StateSlots(frame, unproven, variant.vgprs) if debug else RegisterSlots(frame, unproven)
        e = self.e = Emitter(slots, variant, forms or QuadForms())
        self.flow = e.flow = BlockFlow(e.slots, e.quads, e.reports, graph, analysis, variant.vgprs)
        self.records: dict[tuple[int, int], Touched] = {}
        self.modes = {} if analysis is None else find_float_modes(graph, variant.mode)
        looks = analysis is not None and variant.checks.full
        self.guesses = find_atomic_loads(graph, variant.target) if looks else frozenset()
        self.tracer = Tracer(e) if variant.checks.trace else None
        self.debug = DebugCalls(e, variant.vgprs) if variant.checks.debug else None

    def run(self) -> None:
        for number, block in enumerate(self.graph.blocks.values()):
            self._translate_block(number, block)
        self.flow.start(self._start)

    def _start(self) -> None:
        if self.tracer is not None:
            self.tracer.start()
        if self.debug is not None:
            self.debug.start(0 if self.analysis is None else self.analysis.at_start)

    def _translate_block(self, number: int, block: Block) -> None:
        e = self.e
        e.b.position_at_end(self.flow.blocks[block.start])
        e.frame.pc = block.start
        e.quads.begin_block(block.start)
        e.frame.block = number
        if not waits_at_barrier(block):  # a wave begins that block again when it resumes
            count_block(e)
        for pc, instruction in block.instructions:
            full = self.analysis is not None and (block.start, pc) in self.analysis.exec_full
            ends = is_block_end(instruction, running=True)
            mode = self.modes.get((block.start, pc), e.launch_mode)
            touched = self.records[block.start, pc] = e.begin(pc, instruction, exec_full=full, mode=mode)
            e.guesses = pc in self.guesses
            if self.tracer is not None:
                self.tracer.before(last=ends or instruction.row.flow == "halt")
            before = self.before.get((block.start, pc))
            if self.debug is not None:
                self.debug.before(before, exec_full=full)
            e.quads.before_instruction(0 if before is None else before.writes | before.masked)
            if ends:
                e.quads.flush(block.successors)
            emit_instruction(e)
            if instruction.row.unit not in _KEEP_MEMORY:
                e.quads.memory_changes()
            if e.b.block.is_terminated:
                return
            e.quads.after_instruction()
            if self.tracer is not None:
                self.tracer.after(touched)
        if block.illegal_at is not None:
            e.frame.pc = block.illegal_at
            e.reports.illegal("does not decode")
        else:
            e.quads.flush(block.successors)
            yields = yields_after(self.graph, block, e.checks)
            e.b.branch(
                self.flow.suspension(block.end, Status.FUEL) if yields else e.flow.edge(block.end, e.frame.pc)
            )
