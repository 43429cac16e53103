"""Resources of a workgroup and a wave: P36 LDS, P37 scratch, P39 registers and occupancy."""

from __future__ import annotations

import struct

import numpy as np

from zinc_rt.isa.occupancy import count_waves_per_simd
from zinc_rt.probes.groups.dispatch import SHADER_SHARED, allocate_result
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32
from zinc_rt.probes.kit.shaders import (
    Scratch,
    ShaderBench,
    allocate_scratch,
    count_compute_units,
    load_kernel,
    require_gfx12,
)
from zinc_rt.probes.outcome import T1, T2, Outcome, ProbeFailed, Signature, check, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

LDS_SIZES = (512, 32 << 10, 64 << 10)
LDS_GROUPS = 8
LDS_SEED = 0x5A17_ED00
SCRATCH_GROUPS = 512  # of two waves each
SCRATCH_DW = 64
SPILL_ITEM, SPILL_DWORD = 0x9E37_79B1, 0x85EB_CA6B
VGPR_COUNTS = (8, 32, 96, 192, 256)
VGPR_STEP = 0x0100_0193
SIMDS_PER_CU = 2
LIMIT_WAVES = 1  # RESOURCE_LIMITS.WAVES_PER_SH, in units of 16 waves on gfx10 and later (PAL)

_NOTHING = Signature(
    symptom("nothing-stored"),
    "not every workgroup ran, or its stores did not arrive",
    "-k P33 tests a single store",
)


@probe("P36", "LDS and barrier", (T1, T2), hazard=1, needs=("P34",))
@proves(
    "workgroups have the requested LDS, and their barrier waits for all waves",
    passes_when=f"data written by one wave is read by another, over {', '.join(map(str, LDS_SIZES))} bytes",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("lds-zero"),
    "reads out of range return 0: LDS_SIZE of RSRC2 counts 512 bytes on this chip, and was too small",
    "bits 23:15 of RSRC2; 64 KiB are 128 units",
)
@fails(
    symptom("lds-mixed"),
    "the barrier released waves before all had written, or two workgroups share LDS",
    "with LDS_SIZE too small, neighbours overlap; otherwise check s_barrier_signal and s_barrier_wait",
)
@fails_like(_NOTHING)
@require_gfx12
def probe_lds(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    for size_bytes in LDS_SIZES:
        run_lds(bench, size_bytes)
    return passed(sizes=", ".join(map(str, LDS_SIZES)), workgroups=LDS_GROUPS)


def run_lds(bench: ShaderBench, size_bytes: int) -> bytes:
    count = size_bytes // 4
    out = allocate_result(bench, 4 * count * LDS_GROUPS)
    bench.run(bench.load("lds"), [out], [count], groups=(LDS_GROUPS, 1, 1), lds_bytes=size_bytes)
    raw = out.read(0, 4 * count * LDS_GROUPS)
    got = np.frombuffer(raw, np.uint32).reshape(LDS_GROUPS, count)
    want = np.arange(count - 1, -1, -1, dtype=np.uint32) ^ np.uint32(LDS_SEED)
    wrong = np.argwhere(got != want)
    if len(wrong):
        group, element = (int(item) for item in wrong[0])
        value = int(got[group, element])
        word = {0: "lds-zero", POISON32: "nothing-stored"}.get(value, "lds-mixed")
        raise ProbeFailed(
            word,
            f"{size_bytes} bytes: element {element} of workgroup {group} is {value:#x}, not "
            f"{int(want[element]):#x}; {len(wrong)} of {got.size} are wrong",
            measure={"size_bytes": size_bytes, "wrong": len(wrong)},
        )
    return raw


@probe("P37", "scratch", (T1, T2), hazard=1, needs=("P34",))
@proves(
    "lanes have private scratch memory",
    passes_when=f"256 bytes of each of {64 * SCRATCH_GROUPS} work-items are read back unchanged",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("mixed"),
    "waves share scratch: WAVESIZE counts 256 bytes a wave, WAVES counts a shader engine's waves, and "
    "the base is shifted right by 8",
    "TMPRING_SIZE = waves | wavesize << 12; the buffer size is waves x engines x wavesize",
)
@fails_like(_NOTHING)
@require_gfx12
def probe_scratch(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    room = allocate_scratch(c, load_kernel("scratch"))
    run_spill(bench, room)
    return passed(work_items=64 * SCRATCH_GROUPS, waves_of_an_engine=room.waves, wave_units=room.wave_units)


def run_spill(bench: ShaderBench, room: Scratch) -> bytes:
    program = bench.load("scratch")
    items = program.threads * SCRATCH_GROUPS
    out = allocate_result(bench, 4 * items)
    bench.run(program, [out], groups=(SCRATCH_GROUPS, 1, 1), scratch=room)
    raw = out.read(0, 4 * items)
    got = np.frombuffer(raw, np.uint32)
    item = np.arange(items, dtype=np.uint32)
    dword = item * np.uint32(SPILL_ITEM)
    want = np.zeros(items, np.uint32)
    for _ in range(SCRATCH_DW):
        want = want * np.uint32(31) + dword
        dword = dword + np.uint32(SPILL_DWORD)
    wrong = np.flatnonzero(got != want)
    if len(wrong):
        first = int(wrong[0])
        word = "nothing-stored" if int(got[first]) == POISON32 else "mixed"
        raise ProbeFailed(
            word,
            f"work-item {first} read back {int(got[first]):#x}, it had spilled {int(want[first]):#x}; "
            f"{len(wrong)} of {items} are wrong",
            measure={"wrong": len(wrong), "first_lane": first % 32, "first_wave": first // 32},
        )
    return raw


@probe("P39", "registers and occupancy", (T1, T2), hazard=1, needs=("P34",))
@proves(
    "waves have the declared registers, in workgroups of any size",
    passes_when=(
        f"{', '.join(map(str, VGPR_COUNTS))} VGPRs keep their values; 1,024 work-items in a group; RESOURCE_LIMITS"
    ),
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("registers-mixed"),
    "waves share registers: RSRC1 counts VGPRs in other units on this chip (8 in wave32, 4 in wave64)",
    "compare RSRC1 bits 5:0 with the chip's granule",
)
@fails(
    symptom("too-many-waves"),
    "more waves at once than registers permit: the chip has more registers than assumed",
    "zinc_rt/isa/occupancy.py contains the sizes; please report the chip",
)
@fails(symptom("waves-lost"), "a wave ended without its last instruction", "-k P33; -k P41")
@fails_like(_NOTHING)
@require_gfx12
def probe_register_counts(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    units, _ = count_compute_units(c)
    peaks = {}
    for count in VGPR_COUNTS:
        for threads, groups in ((32, 256), (1024, 16)) if can_fit_1024_threads(count) else ((32, 256),):
            peak = run_fill(bench, count, threads, groups)
            maximum = count_waves_per_simd(count) * SIMDS_PER_CU * units
            check(
                peak <= maximum,
                "too-many-waves",
                f"{peak} waves of {count} VGPRs ran at once, the register file permits {maximum}",
                measure={"peak": peak, "most": maximum},
            )
            peaks[f"waves_{count}x{threads}"] = peak
    limited = run_fill(bench, 8, 32, 256, limits=LIMIT_WAVES)
    return passed(vgprs=", ".join(map(str, VGPR_COUNTS)), **peaks, waves_limited=limited)


def can_fit_1024_threads(vgprs: int) -> bool:
    """Return whether 32 waves fit on the four SIMDs of a workgroup processor."""
    return count_waves_per_simd(vgprs) >= 8


def run_fill(bench: ShaderBench, vgprs: int, threads: int, groups: int, limits: int = 0) -> int:
    """Return the maximum number of waves that were active at once."""
    waves, out = allocate_result(bench, 64, "waves"), allocate_result(bench, 4 * threads * groups)
    waves.put64(0, 0)
    program = bench.load(f"vgprs_{vgprs}")
    bench.run(program, [waves, out], [threads], groups=(groups, 1, 1), threads=(threads, 1, 1), limits=limits)
    got = np.frombuffer(out.read(0, 4 * threads * groups), np.uint32)
    item = np.arange(threads * groups, dtype=np.uint32)
    want = np.zeros(len(item), np.uint32)
    for register in range(4, vgprs):
        want = want * np.uint32(31) + (item + np.uint32(register * VGPR_STEP & 0xFFFFFFFF))
    wrong = np.flatnonzero(got != want)
    if len(wrong):
        first = int(wrong[0])
        word = "nothing-stored" if int(got[first]) == POISON32 else "registers-mixed"
        raise ProbeFailed(
            word,
            f"{vgprs} VGPRs in workgroups of {threads}: work-item {first} folds to {int(got[first]):#x}, not "
            f"{int(want[first]):#x}; {len(wrong)} of {len(item)} are wrong",
            measure={"vgprs": vgprs, "threads": threads, "wrong": len(wrong)},
        )
    left, peak = struct.unpack("<2I", waves.read(0, 8))
    check(left == 0 and peak > 0, "waves-lost", f"{left} waves never ended, the maximum at once was {peak}")
    return peak
