"""Visibility of stores: P40 code and P41 data between host and GPU, P57 data between workgroups."""

from __future__ import annotations

import numpy as np

from zinc_rt.backends.amd.packet_list import ACQUIRE_CACHES
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import CopyData, DmaData, ReleaseMem
from zinc_rt.probes.groups.dispatch import SHADER_SHARED, allocate_result
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32, MappedBuffer, make_pattern
from zinc_rt.probes.kit.probe_queue import FREE_AT
from zinc_rt.probes.kit.shaders import ShaderBench, require_gfx12
from zinc_rt.probes.outcome import T1, T2, Outcome, ProbeFailed, ProbeStuck, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

FIRST, SECOND, THIRD = 0x0000_A0A0, 0x0000_B0B0, 0x0000_C0C0
GLI_FIELD = 0b11  # of GCR_CNTL: instruction cache
ROUNDS = 1000
SIMULATED_ROUNDS = 25  # each is like the others there
CELL_BYTES = 128  # one workgroup of the copy kernel: a cache line
THROUGH_L2 = 2  # src_sel of COPY_DATA: tc_l2
WRITE_BACK = {  # and no invalidation
    Generation.GFX11: gcr.release(Generation.GFX11, GL2_WB=1, SEQ=1),
    Generation.GFX12: gcr.release(Generation.GFX12, GL2_WB=1, SEQ=1),
}
LAST_GROUPS, LAST_LANES = 128, 64
LAST_ROUNDS = 200
PLACEMENTS = (Placement.GTT, Placement.GTT_CACHED, Placement.VRAM_BAR)


@probe("P40", "code replacement", (T1, T2), hazard=1, needs=("P33",))
@proves(
    "replaced code at the same address is executed after the instruction cache was invalidated",
    passes_when="the second kernel's value after ACQUIRE_MEM with GLI_INV; the result without it is only reported",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("stale-code"),
    "the instruction cache still holds the old code: GLI_INV was ignored, or the new code had not "
    "left the host (HDP)",
    "-k P41 distinguishes these; load code only at unused addresses until this passes",
)
@fails(symptom("wrong-code"), "neither kernel's value: part of the new code was seen", "-k P41; then P33")
@require_gfx12
def probe_code_replacement(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    caches = ACQUIRE_CACHES[bench.queue.generation]
    program = bench.load("store", VALUE=FIRST)
    offset = program.offset

    def run_store(value: int, acquire: int) -> int:
        """Return whether the kernel stores `value` after that value was written into its code."""
        bench.load("store", index=offset, VALUE=value)
        out = allocate_result(bench, 64)
        bench.run(program, [out], acquire=acquire)
        return out.u32(0)

    got = [run_store(FIRST, caches), run_store(SECOND, caches)]
    if got != [FIRST, SECOND]:
        word = "stale-code" if got[1] == FIRST else "wrong-code"
        raise ProbeFailed(
            word,
            f"the replaced kernel stored {got[1]:#x}, not {SECOND:#x}, after an ACQUIRE_MEM with GLI_INV",
            evidence=bench.queue.collect_evidence(),
        )
    without = run_store(THIRD, caches & ~GLI_FIELD)
    return passed(replaced=hex(SECOND), without_invalidate="fresh" if without == THIRD else "stale")


@probe("P41", "coherence matrix", (T1, T2), hazard=1, needs=("P33",), seconds=60.0)
@proves(
    "the flushes that GPU and host need to see each other's stores, for each kind of memory",
    passes_when=(
        f"uncached and cached host memory, and VRAM through the BAR: {ROUNDS} of {ROUNDS} with the "
        f"documented recipe"
    ),
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("stale-hdp"),
    "host stores through the BAR stay in HDP: the flush had no effect",
    "T1 writes the remapped HDP register, T2 sends HDP_FLUSH; until it works the runtime must stage "
    "uploads in host memory (P24's DMA_DATA)",
)
@fails(
    symptom("no-write-back"),
    "GPU stores stay in GL2: GL2_WB of the fence's RELEASE_MEM had no effect",
    "compare the packet's cache bits with P20's; until it works results must be copied to host memory",
)
@fails(
    symptom("gtt-cached"),
    (
        "host memory that was requested as uncached is cached by the GPU: rings, fences and step blocks "
        "are in it, and nothing invalidates them"
    ),
    "compare the flags of ALLOC_MEMORY_OF_GPU (COHERENT, UNCACHED; zinc_rt/kmd/kfd_memory.py) or of GEM_CREATE "
    "and GEM_VA (zinc_rt/kmd/userq.py) with kfd_ioctl.h and amdgpu_drm.h; on a card also `dmesg | grep -i iommu`",
)
@fails(
    symptom("gpu-stale"),
    "waves read stale host memory: it is cached although it was requested as uncached, or an IOMMU is involved",
    "boot with iommu=pt; `dmesg | grep -i iommu`",
)
@fails(
    symptom("host-stale"),
    "the host reads its memory before the GPU's stores arrive: the fence overtook them",
    "P20's fence is of type 0x14 at the end of the pipe with GL2_WB; boot with iommu=pt",
)
@require_gfx12
def probe_coherence_matrix(c: ProbeContext) -> Outcome:
    """Check the recipes that must work every time, and count how often it works without them, for
    information."""
    bench = ShaderBench(c)
    rounds = SIMULATED_ROUNDS if c.driver.simulated else ROUNDS
    seen: dict[str, str] = {}
    for placement in PLACEMENTS:
        try:
            memory = c.memory(4096, f"coherence in {placement.value}", placement)
        except DriverError as error:
            if placement is Placement.GTT:
                raise
            seen[placement.value] = f"not available: {error.why}"
            continue
        bar = placement is Placement.VRAM_BAR
        if placement is Placement.GTT:
            seen["gtt without cache packets"] = read_without_invalidate(bench, memory)
        for name, word, count in (
            (
                "cpu to gpu",
                "stale-hdp" if bar else "gpu-stale",
                count_fresh_gpu_reads(bench, memory, rounds, hdp=bar),
            ),
            (
                "gpu to cpu",
                "host-stale" if placement is Placement.GTT else "no-write-back",
                count_fresh_host_reads(bench, memory, rounds, write_back=True),
            ),
        ):
            seen[f"{placement.value} {name}"] = f"{count}/{rounds}"
            if count != rounds:
                where = f"{placement.value}, {name}: {count} of {rounds} rounds saw what was written"
                raise ProbeFailed(word, where, measure=dict(seen), evidence=bench.queue.collect_evidence())
        if bar:
            seen["without hdp flush"] = f"{count_fresh_gpu_reads(bench, memory, rounds, hdp=False)}/{rounds}"
            seen["without gl2 write-back"] = (
                f"{count_fresh_host_reads(bench, memory, rounds, write_back=False)}/{rounds}"
            )
    return passed(**seen)


def read_without_invalidate(bench: ShaderBench, memory: MappedBuffer) -> str:
    """Read with the command processor, write from the host, and read again without an invalidation."""
    queue = bench.queue
    read = []
    for number in (1, 2):
        memory.put32(0, number)
        index = FREE_AT + 8 * number
        packets = [
            CopyData(memory.gpu_va, queue.memory.gpu_va + index, src_sel=THROUGH_L2, wr_confirm=1),
            ReleaseMem(queue.memory.gpu_va + FREE_AT, number, WRITE_BACK[queue.generation]),
        ]
        queue.memory.put32(FREE_AT, POISON32)
        queue.run(packets, "a read without an invalidation")
        try:
            queue.wait_for_value32(
                FREE_AT, number, "the fence that only writes back is not written", bench.seconds
            )
        except ProbeStuck as stuck:
            ring = "gtt: the ring is in the same memory, and stale lines of it seem to be read"
            raise ProbeFailed("gtt-cached", f"{ring}: {stuck}", evidence=stuck.outcome.evidence) from stuck
        read.append(queue.memory.u32(index))
    if read != [1, 2]:
        raise ProbeFailed(
            "gtt-cached",
            (
                f"gtt: the command processor read {read[1]:#x} where the host had written 0x2: a stale "
                "line, with no invalidation between"
            ),
            evidence=queue.collect_evidence(),
        )
    return "fresh"


def count_fresh_gpu_reads(bench: ShaderBench, memory: MappedBuffer, rounds: int, *, hdp: bool) -> int:
    """Return the number of rounds in which waves read the values that the host had just written to `memory`."""
    out = allocate_result(bench, CELL_BYTES)
    program = bench.load("copy")
    fresh = 0
    for number in range(rounds):
        want = make_pattern(CELL_BYTES, number + 1)
        memory.put(0, want)
        flush = bench.context.side.flush_hdp() if hdp else ()
        bench.finish([*flush, *bench.launch(program, [memory, out])], "host to GPU")
        fresh += out.read(0, CELL_BYTES) == want
    return fresh


def count_fresh_host_reads(bench: ShaderBench, memory: MappedBuffer, rounds: int, *, write_back: bool) -> int:
    """Return the number of rounds in which the host read the values that waves had just written to `memory`."""
    queue = bench.queue
    source = allocate_result(bench, CELL_BYTES, "source")
    program = bench.load("copy")
    fresh = 0
    for number in range(rounds):
        want = make_pattern(CELL_BYTES, -number - 1)
        source.put(0, want)
        packets = bench.launch(program, [source, memory])
        if write_back:
            bench.finish(packets, "GPU to host")
        else:
            queue.memory.put32(FREE_AT, POISON32)
            queue.run([*packets, ReleaseMem(queue.memory.gpu_va + FREE_AT, number, 0)], "no write-back")
            queue.wait_for_value32(FREE_AT, number, "the fence without a write-back is not written", bench.seconds)
        fresh += memory.read(0, CELL_BYTES) == want
    return fresh


@probe("P57", "last workgroup", (T1, T2), hazard=1, needs=("P24", "P36"))
@proves(
    "the last workgroup of a dispatch to finish reads what all the others have stored",
    passes_when=f"the sums over {LAST_GROUPS} workgroups that share cache lines, {LAST_ROUNDS} times, in VRAM",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("nobody-last"),
    "no workgroup saw itself as the last: the atomic did not return the number of earlier arrivals",
    "-k P25 tests the CP's atomics on the same memory; compare th:TH_ATOMIC_RETURN in last_workgroup.inc",
)
@fails(
    symptom("stale-sums"),
    "the last workgroup read stale lines of its caches, or stores of others had not left theirs: global_wb before "
    "the atomic or global_inv after it, both with device scope, had no effect",
    "kernels that end in their last workgroup give wrong results: disable fused nodes until this passes",
)
@require_gfx12
def probe_last_workgroup(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    sums = c.memory(4 * LAST_LANES * LAST_GROUPS + 4096, "sums and arrivals", Placement.VRAM)
    rounds = SIMULATED_ROUNDS if c.driver.simulated else LAST_ROUNDS
    run_last_workgroup(bench, sums, rounds)
    return passed(workgroups=LAST_GROUPS, rounds=rounds)


def run_last_workgroup(bench: ShaderBench, sums: MappedBuffer, rounds: int, before: int = LAST_GROUPS - 1) -> None:
    """Add up in the last workgroup, `rounds` times. `before`: arrivals before the last. Raise ProbeFailed."""
    size_bytes = 4 * LAST_LANES * LAST_GROUPS
    bench.queue.finish([DmaData(0, sums.gpu_va, sums.size_bytes, src_sel=2)], "DMA_DATA fill")
    program, out = bench.load("last_workgroup"), allocate_result(bench, 4 * LAST_LANES)
    lanes = np.arange(1, LAST_LANES + 1, dtype=np.uint32)
    a_round = lanes * np.uint32(LAST_GROUPS * (LAST_GROUPS + 1) // 2)
    for number in range(rounds):
        out.poison()
        bench.run(
            program,
            [sums, sums.gpu_va + size_bytes, out],
            [LAST_GROUPS, number * LAST_GROUPS + before, 1],
            groups=(LAST_GROUPS, 1, 1),
        )
        got, want = np.frombuffer(out.read(0, 4 * LAST_LANES), np.uint32), a_round * np.uint32(number + 1)
        wrong = np.flatnonzero(got != want)
        if len(wrong):
            lane = int(wrong[0])
            word = "nobody-last" if int(got[lane]) == POISON32 else "stale-sums"
            raise ProbeFailed(
                word,
                f"round {number}: lane {lane} added up to {int(got[lane]):#x}, not {int(want[lane]):#x}; "
                f"{len(wrong)} of {LAST_LANES} are wrong",
                measure={"round": number, "wrong": len(wrong)},
            )
