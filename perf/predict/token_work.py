"""The work of a decoded token or of a prompt on a GPU, from the lowered graph: bytes, dispatches, instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from zinc_rt.backends.amd import command_stream
from zinc_rt.backends.amd.loaded_kernels import LoadedKernel
from zinc_rt.backends.registry import AMD_ORDERINGS
from zinc_rt.engine.memory_fit import check_context_memory
from zinc_rt.engine.resident import parse_capacity
from zinc_rt.engine.runner import LOGITS, NONFINITE
from zinc_rt.engine.variants import CAPACITIES
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.ir.ring_entry import BYTES as ENTRY_BYTES
from zinc_rt.isa.report import KernelReport, make_kernel_report
from zinc_rt.isa.target import DEFAULT_ARCH, target_of
from zinc_rt.kernels.rows.expand import ExpandedType, list_expanded_types
from zinc_rt.kernels.sets import BinaryKernelSet, find_code_chip, find_kernel_set
from zinc_rt.lower import Barrier, DispatchPlan, LoweredGraph, dispatch_plan, find_refusal, lower
from zinc_rt.mem.plan import choose_linger, count_buffer_bytes, plan_memory
from zinc_rt.mem.residency import list_experts
from zinc_rt.mem.traffic import Traffic, list_decode_traffic
from zinc_rt.model.builder import HIDDEN, SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_draft_model, build_model
from zinc_rt.model.sample_graph import CURSOR, TOKEN, SampleForm, add_sampling
from zinc_rt.perf.predict.dispatch_work import DispatchWork, Step, dispatch_works
from zinc_rt.perf.predict.host_experts import ModelWeights
from zinc_rt.perf.predict.wave_work import StepTokens
from zinc_rt.pm4.generation import generation_of

ARCH = find_code_chip(DEFAULT_ARCH)
SOMEWHERE = 1 << 32  # an address: only the packets' size is looked at


@dataclass(frozen=True, slots=True)
class TokenWork:
    """One step of `tokens`, divided equally among `sequences`, with the last token of each at position.

    `arch` is the chip whose kernels are counted. `traffic` is by class and type; `kernels` by name; `each` has the
    dispatches in order. `readback_bytes` are read by the host in each step; it does not read the `logits_bytes`.
    `expanded` is the device memory of types that the device stores in another form.
    """

    model: str
    arch: str
    architecture: str
    position: int
    tokens: int
    sequences: int
    traffic: tuple[Traffic, ...]
    dispatches: int
    barriers: int
    ib_dwords: int
    packets: int
    readback_bytes: int
    logits_bytes: int
    kernels: Mapping[str, KernelReport]
    each: tuple[DispatchWork, ...]
    expanded: tuple[ExpandedType, ...]
    weights: ModelWeights

    @property
    def read_bytes(self) -> int:
        return sum(row.read_bytes for row in self.traffic)

    @property
    def written_bytes(self) -> int:
        return sum(row.written_bytes for row in self.traffic)

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


def choose_counted_arch(arch: str) -> str:
    """Return the chip whose kernels are counted for a device: its own, or the default chip's if it has none."""
    chip = find_code_chip(arch)
    return ARCH if find_kernel_set(chip) is None else chip


def compute_work(
    gguf: GGUFFile,
    *,
    ctx: int,
    position: int,
    tokens: int = 1,
    sequences: int = 1,
    rows: int | None = None,
    arch: str = ARCH,
    plain: bool = False,
    ordering: str = AMD_ORDERINGS[0],
    kv_type: str = ACTIVATION,
    mtp: bool = False,
    draft: bool = False,
    transform: Callable[[OpGraph], OpGraph] | None = None,
) -> TokenWork:
    """Return the work of a token, of `tokens` of a prompt together, or of one token of each of `sequences`, as
    executed. `rows` of logits: one of each sequence, or more of a single one, for drafts. `plain`: without fused
    nodes and merged dispatches, to show their savings. `kv_type`: of cached keys and values, one of
    ir.dtypes.CACHE_TYPES. `mtp`: the step also stores what the file's layer for next-token prediction needs;
    `draft`: the work is that of one draft by this layer.
    `transform` replaces the model's graph, for another ordering of prompts.

    Raise UnsupportedError for a chip without kernels or a node without a kernel, with the reason.
    """
    kernel_set = find_kernel_set(find_code_chip(arch))
    if not isinstance(kernel_set, BinaryKernelSet):
        raise UnsupportedError(f"{arch}: this version has no kernels for it", next=f"--arch {ARCH} counts theirs")
    tokens = max(tokens, sequences)
    rows = sequences if rows is None else rows
    limits = SequenceLimits(ctx=ctx, slots=sequences, rows=rows, kv_type=kv_type, mtp=mtp or draft)
    check_context_memory(gguf, limits, state=False)
    model = build_model(gguf, limits, "decode" if tokens == 1 else "prefill")
    if draft:
        graph, read = build_draft_model(model).graph, (TOKEN, HIDDEN)
    else:
        form = SampleForm(model.vocab, sequences, draft_rows=rows - sequences, greedy=True)
        graph, read = (
            add_sampling(model.graph if transform is None else transform(model.graph), form),
            (CURSOR, NONFINITE),
        )
    holds = next((capacity for capacity in CAPACITIES if capacity >= tokens), tokens)
    capacity = parse_capacity((holds, min(holds, sequences), min(holds, rows)))
    if kernel_set.fuses and not plain:
        graph = fuse_graph(graph, lambda node, of: find_refusal(node, of, kernel_set.entries, ordering) is None)
    program = _lower_graph(graph, kernel_set, capacity, ordering)
    plan = dispatch_plan(replace(program, merging=None if plain else kernel_set.merging))
    loaded = _load_kernels(plan, kernel_set)
    stream = command_stream.build_packets(plan, SOMEWHERE, loaded, generation_of(arch)).packets
    reports = {name: _report(arch, name) for name in loaded}
    whole = Step(_with_stored_types(graph, kernel_set), capacity, StepTokens(tokens, sequences, position, rows))
    return TokenWork(
        model=gguf.path.name,
        arch=find_code_chip(arch),
        architecture=gguf.architecture,
        position=position,
        tokens=tokens,
        sequences=sequences,
        traffic=list_decode_traffic(whole.graph, position=position, tokens=tokens, sequences=sequences),
        dispatches=sum(1 for _ in plan.dispatches),
        barriers=_count_barriers(plan),
        ib_dwords=sum(len(packet.words(generation_of(arch))) for packet in stream),
        packets=len(stream),
        readback_bytes=sum(count_buffer_bytes(graph.buffers[name], capacity) for name in read) + ENTRY_BYTES,
        logits_bytes=count_buffer_bytes(graph.buffers[LOGITS], capacity),
        kernels=reports,
        each=dispatch_works(
            plan,
            whole,
            arch,
            reports,
            {name: prod(kernel_set.load(name).workgroup) for name in loaded},
        ),
        expanded=list_expanded_types(kernel_set.expansions, model.weights.values()),
        weights=ModelWeights(
            list_experts(model.graph),
            {name: kernel_set.packed_bytes(weight) for name, weight in model.weights.items()},
            program.plan,
        ),
    )


def _lower_graph(
    graph: OpGraph, rows: BinaryKernelSet, capacity: Mapping[str, int], ordering: str
) -> LoweredGraph:
    plan = plan_memory(graph, capacity=capacity, linger=choose_linger(capacity))
    return lower(graph, rows.entries, plan, ordering=ordering, tier="t1")


def _count_barriers(plan: DispatchPlan) -> int:
    return sum(isinstance(step, Barrier) for step in plan.steps)


def _with_stored_types(graph: OpGraph, rows: BinaryKernelSet) -> OpGraph:
    """Return the graph with its weights in the types that the device stores and reads."""
    stored = {
        name: replace(spec, dtype=rows.expansions[spec.dtype])
        for name, spec in graph.buffers.items()
        if spec.role == "weight" and spec.dtype in rows.expansions
    }
    return replace(graph, buffers={**graph.buffers, **stored}) if stored else graph


@cache
def _report(arch: str, name: str) -> KernelReport:
    rows = find_kernel_set(find_code_chip(arch))
    assert isinstance(rows, BinaryKernelSet)
    zrt = rows.load(name)
    return make_kernel_report(
        zrt.code,
        target_of(arch, zrt.wave),
        entry=zrt.entry_offset,
        vgprs=zrt.vgprs,
        sgprs=zrt.sgprs,
        lds_bytes=zrt.lds_bytes,
        threads=zrt.workgroup[0] * zrt.workgroup[1] * zrt.workgroup[2],
    )


def _load_kernels(plan: DispatchPlan, rows: BinaryKernelSet) -> dict[str, LoadedKernel]:
    """Return the kernels of a plan as a device would load them, at placeholder addresses."""
    loaded = {}
    for number, name in enumerate(dict.fromkeys(step.launch.kernel for step in plan.dispatches)):
        zrt = rows.load(name)
        x, y, z = zrt.workgroup
        loaded[name] = LoadedKernel(
            name,
            SOMEWHERE + (number << 16),
            (zrt.rsrc1, zrt.rsrc2, zrt.rsrc3),
            (x, y, z),
            zrt.buffers,
            zrt.constant_bytes // 4,
        )
    return loaded
