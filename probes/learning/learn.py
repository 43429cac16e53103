"""Measure on the card what the references leave open: one probe per fact, for `--learn FACTS.json`.

Each probe's outcome has the fact as `value`, and the method in `how`. The facts that the simulated device
can reproduce are in zinc_rt/sim/facts.py (SWITCHES). Its default for each is a row of
zinc_rt/host/facts.yaml.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.isa.elf import read_section_contents
from zinc_rt.kernels.assemble import is_available
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import WriteData
from zinc_rt.probes.groups.coherence import probe_code_replacement, probe_coherence_matrix
from zinc_rt.probes.groups.cp_basic import COUNTER_HZ, RATE_SECONDS
from zinc_rt.probes.groups.dispatch import allocate_result, probe_indirect_and_start, read_disabled_ids
from zinc_rt.probes.groups.faults import start_spin
from zinc_rt.probes.kit.context import ProbeContext, wait_until
from zinc_rt.probes.kit.mapped_buffer import POISON32
from zinc_rt.probes.kit.probe_queue import FREE_AT
from zinc_rt.probes.kit.shaders import (
    TARGET,
    ShaderBench,
    explain_missing_kernels,
    find_generation_in_child,
    read_dwords,
    require_gfx12,
)
from zinc_rt.probes.outcome import T1, T2, Outcome, ProbeFailed, check, make_skip, passed
from zinc_rt.probes.probe import Probe

LDS_BYTES = 512
HELD_SECONDS = 2.0  # ample for a command processor, also a simulated one on a busy machine
HW_ID_GROUPS = 1024
SGPR_READ_GROUPS, SGPR_READ_ROUNDS = 64, 64
SGPR_READ_FORMS = ("VCC written by the VALU", "an SGPR written by the VALU", "an SGPR written by the SALU")
WMMA_STEPS = ((0, 0), (1, 0), (0, 2), (1, 2))  # lane // 16, first of two registers: rocjitsu's captures
WMMA_PLACES = [(group, register, half) for group in range(2) for register in range(4) for half in range(2)]
BIG, SMALL = np.float16(2.0**12), np.float16(2.0**-5)
REGISTERS = {  # s_getreg_b32's numbers (LLVM, SIDefines.h)
    "MODE": 1, "STATUS": 2, "HW_ID1": 23, "HW_ID2": 24,
    "SHADER_CYCLES_LO": 29, "SHADER_CYCLES_HI": 30,
}  # fmt: skip
HW_ID1_FIELDS = {"WAVE_ID": (0, 5), "SIMD_ID": (8, 2), "WGP_ID": (10, 4), "SA_ID": (16, 1), "SE_ID": (18, 3)}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
}
SAMPLE = 4096  # inputs
DEEPEST = 4  # of indirect buffers
REGISTER_SECONDS = 3.0
RSRC1_OFFSET = 48  # in a kernel descriptor (AMDGPUUsage)
DESCRIPTOR = f"""\
.amdgcn_target "amdgcn-amd-amdhsa--{TARGET.name}"
.text
.p2align 8
kernel:
    s_endpgm
.rodata
.p2align 6
.amdhsa_kernel kernel
    .amdhsa_next_free_vgpr 1
    .amdhsa_next_free_sgpr 1
.end_amdhsa_kernel
"""


def make_fact(value: Any, how: str) -> Outcome:
    return passed(value=value, how=how)


def probe_counter(c: ProbeContext) -> Outcome:
    queue = c.queue()

    def read_counter() -> tuple[int, float]:
        before = time.perf_counter()
        queue.finish([queue.release(queue.memory.gpu_va + FREE_AT, 0, data_sel=3)], "timestamp")
        return queue.memory.u64(FREE_AT), (before + time.perf_counter()) / 2

    rates = []
    for _ in range(5):
        first, start = read_counter()
        time.sleep(RATE_SECONDS)
        second, ended = read_counter()
        rates.append((second - first) / (ended - start))
    hz = sorted(rates)[2]
    about = c.render.device()["gpu_counter_freq"] * 1000
    return make_fact(
        {"hz": round(hz), "believed_hz": round(COUNTER_HZ), "kernel_says_hz": about},
        (
            f"RELEASE_MEM timestamps compared with this host's clock, median of {len(rates)} spans of "
            f"{RATE_SECONDS:g} s"
        ),
    )


@require_gfx12
def probe_disabled_ids(c: ProbeContext) -> Outcome:
    outcome = read_disabled_ids(ShaderBench(c))
    if outcome == "other":
        raise ProbeFailed(
            "other", "the workgroup ids are neither correct nor zero when RSRC2 does not enable them"
        )
    return make_fact(outcome, "a 3-D grid with TGID_X_EN, Y, Z of RSRC2 clear, ids from ttmp9 and ttmp7")


@require_gfx12
def probe_initial_registers(c: ProbeContext) -> Outcome:
    c.expected |= {"uninitialised-sgpr", "uninitialised-vgpr"}
    bench = ShaderBench(c)
    groups = 8
    out = allocate_result(bench, 512 * groups)
    va = out.gpu_va
    bench.run(bench.load("state"), groups=(groups, 1, 1), user_data=(va & 0xFFFFFFFF, va >> 32))
    table = np.frombuffer(out.read(0, 512 * groups), np.uint32).reshape(groups, 128)
    check(int(table[0, 2]) != POISON32, "nothing-stored", "the wave's registers were not stored")

    def read_words(first: int, count: int) -> Any:
        part = table[:, first : first + count]
        if not part.any():
            return "zero"
        if (part == part[0]).all():
            return [hex(int(item)) for item in part[0]]
        return "differ between waves"

    value = {
        "s2_to_s31": read_words(2, 30),
        "vcc": read_words(32, 2),
        "m0": read_words(34, 1),
        "v1_to_v31": read_words(65, 31),
    }
    value |= {f"ttmp{n}": read_words(48 + n, 1) for n in range(16)}
    return make_fact(value, f"stored first by each of {groups} waves, two user SGPRs")


@require_gfx12
def probe_hw_id(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    program = bench.load("hw_id")
    out = allocate_result(bench, 8 * HW_ID_GROUPS)
    bench.run(program, [out], groups=(HW_ID_GROUPS, 1, 1))
    ids = np.array(read_dwords(out, 2 * HW_ID_GROUPS), np.uint32).reshape(-1, 2)
    value: dict[str, Any] = {}
    for index, name in enumerate(("hw_id1", "hw_id2")):
        column = ids[:, index]
        varies = int(np.bitwise_or.reduce(column ^ column[0]))
        value[name] = {"varies": hex(varies), "constant": hex(int(column[0]) & ~varies & 0xFFFFFFFF)}
    first = ids[:, 0]
    value["believed_fields"] = {
        name: len(set((first >> low & (1 << size) - 1).tolist())) for name, (low, size) in HW_ID1_FIELDS.items()
    }
    return make_fact(
        value, f"s_getreg_b32 in {HW_ID_GROUPS} waves: bits that differ, and values of each believed field"
    )


def probe_hardware_registers(c: ProbeContext) -> Outcome:
    """Read each register in a separate process, because a wave that is not allowed to read it does not
    continue.
    """
    reason = explain_missing_kernels(find_generation_in_child(c))
    if reason:
        return make_skip(reason)
    value = {}
    for name, number in REGISTERS.items():
        ended = c.run_in_child(partial(_read_register, number), REGISTER_SECONDS + 20.0)
        value[name] = ended.value if ended.how == "returned" else "not readable"
    return make_fact(value, "s_getreg_b32 of all 32 bits, one dispatch each")


def _read_register(number: int, c: ProbeContext) -> str:
    with c:
        bench = ShaderBench(c)
        out = allocate_result(bench, 64)
        program = bench.load("getreg")
        word = struct.unpack("<I", bench.code.read(program.offset, 4))[0]
        bench.code.put(program.offset, struct.pack("<I", word & ~0x3F | number))
        bench.queue.submit(bench.launch(program, [out]), "getreg")
        wait_until(lambda: out.u32(0) != POISON32, REGISTER_SECONDS, 0.01)
        got = out.u32(0)
        return "not readable" if got == POISON32 else hex(got)


@require_gfx12
def probe_sgpr_hazard(c: ProbeContext) -> Outcome:
    """Test the SGPR read hazard. RADV omits the wait for a carry in VCC, where the ISA guide and LLVM
    require it."""
    c.expected.add("sgpr-read")
    bench = ShaderBench(c)
    out = allocate_result(bench, 384 * SGPR_READ_GROUPS)
    bench.run(bench.load("sgpr_read"), [out], [SGPR_READ_ROUNDS], groups=(SGPR_READ_GROUPS, 1, 1))
    old = np.array(read_dwords(out, 96 * SGPR_READ_GROUPS), np.int64).reshape(-1, 3, 32).sum((0, 2))
    reads = 32 * SGPR_READ_GROUPS * SGPR_READ_ROUNDS
    value = {
        form: f"old in {count} of {reads} reads" if count else "new"
        for form, count in zip(SGPR_READ_FORMS, old.tolist(), strict=True)
    }
    return make_fact(
        value, "written, and read by the VALU at once without s_wait_alu, after it had read the register"
    )


@require_gfx12
def probe_denormals(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    inputs, out = allocate_result(bench, 64, "in"), allocate_result(bench, 64)
    small = (0x0000_0001, 0x0000_0001)
    inputs.put(0, struct.pack("<2I", *small))
    value: dict[str, Any] = {}
    for mode in (0xF0, 0xC0, 0x00):
        out.poison()
        bench.run(bench.load("denormals"), [inputs, out], float_mode=mode)
        got = out.u32(0), out.u32(4)
        if got[0] == POISON32:
            value[f"{mode:#04x}"] = "did not run"
            continue
        kept = (got[0] == small[0], got[1] & 0xFFFF == small[1])
        value[f"{mode:#04x}"] = {"f32": "kept" if kept[0] else "flushed", "f16": "kept" if kept[1] else "flushed"}
    return make_fact(value, "0 + the smallest denormal, FLOAT_MODE of RSRC1 as named")


def probe_assembler_float_mode(c: ProbeContext) -> Outcome:
    """Record the assembler's float mode. This is a property of the host, but is stored with the card's
    facts."""
    if not is_available():
        return make_skip("no assembler: the package ziglang is not installed", advice="pip install 'zinc-rt[asm]'")
    with tempfile.TemporaryDirectory() as name:
        source, output = Path(name) / "kernel.s", Path(name) / "kernel.o"
        source.write_text(DESCRIPTOR, encoding="utf-8")
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={TARGET.name}"]
        subprocess.run([*command, "-c", str(source), "-o", str(output)], check=True, capture_output=True)
        descriptor = read_section_contents(output.read_bytes(), "kernel.o")[".rodata"]
    mode = struct.unpack_from("<I", descriptor, RSRC1_OFFSET)[0] >> 12 & 0xFF
    return make_fact(
        {"float_mode": hex(mode), "f32_denormals": "kept" if mode >> 4 & 3 == 3 else "flushed"},
        "RSRC1 of a kernel descriptor without a float mode, as written by this assembler",
    )


@require_gfx12
def probe_lds_out_of_range(c: ProbeContext) -> Outcome:
    c.expected |= {"lds-out-of-bounds", "out-of-bounds"}
    bench = ShaderBench(c)
    value = {}
    for offset in (LDS_BYTES, 2 * LDS_BYTES, 0xFFFC, 0x10000):
        out = allocate_result(bench, 64)
        bench.run(bench.load("lds_beyond"), [out], [offset])
        value[hex(offset)] = hex(out.u32(0))
    return make_fact(value, f"ds_load_b32 beyond the {LDS_BYTES} bytes of a workgroup")


@require_gfx12
def probe_buffer_offset(c: ProbeContext) -> Outcome:
    """Load with a VGPR offset of -16 and a second offset of 20, from a buffer of 16 bytes."""
    bench = ShaderBench(c)
    inputs, out = allocate_result(bench, 64, "in"), allocate_result(bench, 64)
    inputs.put(0, struct.pack("<4I", 1, 2, 3, 4))
    bench.run(bench.load("buffer_offset"), [inputs, out])
    names = {0: "outside", 2: "wraps"}
    immediate, scalar = (names.get(out.u32(at), hex(out.u32(at))) for at in (0, 4))
    return make_fact(immediate, f"buffer_load_b32 at -16 + 20 of 16 bytes; with 20 in an SGPR: {scalar}")


@require_gfx12
def probe_stale_code(c: ProbeContext) -> Outcome:
    outcome = probe_code_replacement.run(c)
    return make_fact(
        outcome.measure["without_invalidate"], "code replaced in uncached host memory, run again without GLI_INV"
    )


@require_gfx12
def probe_unflushed_bar(c: ProbeContext) -> Outcome:
    measure = probe_coherence_matrix.run(c).measure
    counts = {}
    for name in ("without hdp flush", "without gl2 write-back"):
        if name not in measure:
            raise ProbeFailed("no-bar", f"VRAM through the BAR: {measure.get('vram_bar', 'not available')}")
        fresh, rounds = map(int, str(measure[name]).split("/"))
        counts[name] = fresh == rounds
    value = "fresh" if all(counts.values()) else "stale"
    return make_fact(value, "; ".join(f"{name}: {measure[name]} rounds fresh" for name in counts))


@require_gfx12
def probe_dims_with_start(c: ProbeContext) -> Outcome:
    outcome = probe_indirect_and_start.run(c)
    return make_fact(
        outcome.measure["dims_with_start"], "DISPATCH with START and without FORCE_START_AT_000: which ids ran"
    )


@require_gfx12
def probe_protected_fence(c: ProbeContext) -> Outcome:
    queue, gpu = c.queue(), c.userq
    fence, memory = start_spin(c, queue)
    syncobj = gpu.create_syncobj("after a running wave")
    gpu.signal(queue.kmd_queue, [syncobj])
    early = syncobj.wait(HELD_SECONDS)
    memory.put32(FREE_AT, 1)
    fence.wait(c.poll_seconds)
    check(syncobj.wait(c.poll_seconds), "no-signal", "PROTECTED_FENCE_SIGNAL has no effect")
    syncobj.destroy()
    return make_fact(
        "at once" if early else "waits", f"its syncobj {HELD_SECONDS:g} s after it, while a wave is still running"
    )


def probe_ib_nesting(c: ProbeContext) -> Outcome:
    """Test each depth in a separate process, because one that is too deep may hang its queue."""
    deepest = 0
    for depth in range(1, DEEPEST + 1):
        ended = c.run_in_child(partial(_test_nesting, depth), 30.0)
        if ended.how != "returned" or not ended.value:
            break
        deepest = depth
    check(deepest > 0, "no-ib", "not even an indirect buffer called from the ring is executed")
    how = f"nested buffers, with a mark before and after each call, up to {DEEPEST} deep"
    return make_fact(deepest, how)


def _test_nesting(depth: int, c: ProbeContext) -> bool:
    """Return whether the marks of every buffer, in both directions, arrive in time."""
    with c:
        queue = c.queue()
        va = queue.memory.gpu_va + FREE_AT
        inner: list[Packet] = []
        for level in reversed(range(depth)):
            before = WriteData(va + 8 * level, (level + 1,), wr_confirm=1)
            behind = WriteData(va + 8 * level + 4, (level + 1,), wr_confirm=1)
            inner = [queue.put_ib(c.memory(4096, f"IB {level}"), [before, *inner, behind])]
        queue.run(inner, "nested IBs")
        want = tuple(level + 1 for level in range(depth) for _ in range(2))
        return wait_until(lambda: read_dwords(queue.memory, 2 * depth, FREE_AT) == want, c.poll_seconds, 0.01)


# --- WMMA ---


@require_gfx12
def probe_wmma_f16_order(c: ProbeContext) -> Outcome:
    """Determine the order in which a matrix multiply adds. C = -2^24; the product at position p is 2^24,
    at position n 2^-10, all others are 0. If they are added sequentially with rounding, 2^-10 remains
    if p precedes n, and is lost in -2^24 if it follows. If four products are added per step, 2^-10 remains if p's
    step precedes n's, and is floored if both are in the same step: -2^-10 then gives -1.
    """
    bench = ShaderBench(c)
    left, negative = (_find_lost_terms(bench, sign * SMALL) for sign in (np.float16(1), np.float16(-1)))
    first = left == np.float32(2.0**-10)  # [p, n]: p is added before n
    count = len(WMMA_PLACES)
    ranks = [int(sum(first[:, n])) - int(first[n, n]) for n in range(count)]  # how many come before n
    how = "which of two products is rounded away, for every pair of positions"
    if sorted(ranks) == list(range(count)):
        order = sorted(range(count), key=ranks.__getitem__)
        return make_fact([list(WMMA_PLACES[item]) for item in order], how)
    steps = [WMMA_STEPS.index((group, register & 2)) for group, register, _ in WMMA_PLACES]
    same = np.equal.outer(steps, steps) & ~np.eye(count, dtype=bool)
    in_steps = ranks == [4 * step for step in steps] and (negative[same] == np.float32(-1)).all()
    if in_steps:
        return make_fact("four a step", how)
    digest = hashlib.sha256(left.tobytes() + negative.tobytes()).hexdigest()
    return make_fact("neither", f"{how}: {first.astype(int).tolist()}, D's sha256 {digest[:16]}")


def _find_lost_terms(bench: ShaderBench, small: np.float16) -> np.ndarray:
    """Return float32 [p, n]: D of a product 2^24 at position p and ±2^-10 at position n."""
    count = len(WMMA_PLACES)
    a = np.full((count, 32, 8), SMALL, np.float16)
    b = np.zeros((count, 32, 8), np.float16)
    for p, wmma_place in enumerate(WMMA_PLACES):
        for row in range(16):
            _set_element(a[p], row, wmma_place, BIG)
        for n, other in enumerate(WMMA_PLACES):
            _set_element(b[p], n, other, small)
            _set_element(b[p], n, wmma_place, BIG)
    start = np.full((count, 32, 8), -(2.0**24), np.float32)
    memories = [
        allocate_result(bench, item.nbytes, name)
        for name, item in (("a", a), ("b", b), ("c", start), ("out", start))
    ]
    contents: list[np.ndarray] = [a, b, start]
    for memory, content in zip(memories, contents, strict=False):
        memory.put(0, content.tobytes())
    bench.run(bench.load("wmma"), memories, groups=(count, 1, 1))
    got = np.frombuffer(memories[3].read(0, start.nbytes), np.float32).reshape(count, 2, 16, 8)
    left = np.zeros((count, count), np.float32)
    for p in range(count):
        rows = got[p].transpose(0, 2, 1).reshape(16, 16)  # D[row][column]
        if not (rows == rows[0]).all():
            raise ProbeFailed("rows-differ", "rows of D with the same A differ")
        left[p] = rows[0]
    return left


def _set_element(matrix_: np.ndarray, row: int, place: tuple[int, int, int], value: np.float16) -> None:
    group, register, half = place
    matrix_[16 * group + row, 2 * register + half] = value


# --- functions to the last bit ---


@require_gfx12
def probe_function_bits(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    inputs = sample()
    argument, out = allocate_result(bench, inputs.nbytes, "in"), allocate_result(bench, 32 * len(inputs))
    argument.put(0, inputs.tobytes())
    bench.run(bench.load("functions"), [argument, out], groups=(len(inputs) // 32, 1, 1))
    table = np.frombuffer(out.read(0, 32 * len(inputs)), np.uint32).reshape(-1, 8)
    value = {name: measure_distances(name, inputs, table[:, index].copy()) for index, name in enumerate(FUNCTIONS)}
    digest = hashlib.sha256(inputs.tobytes()).hexdigest()
    return make_fact(value, f"{len(inputs)} inputs (sha256 {digest[:16]}), ULPs from the correctly rounded result")


def sample() -> np.ndarray:
    """Return [SAMPLE] float32: half random bits, half of ordinary magnitude; always the same."""
    words = np.random.Generator(np.random.PCG64(1201)).integers(0, 1 << 32, SAMPLE, np.uint32)
    exponent = np.uint32(117) + (words[SAMPLE // 2 :] >> np.uint32(8)) % np.uint32(17)  # 2^-10 to 2^6
    words[SAMPLE // 2 :] = words[SAMPLE // 2 :] & np.uint32(0x807FFFFF) | exponent << np.uint32(23)
    return words.view(np.float32)


def measure_distances(name: str, inputs: np.ndarray, words: np.ndarray) -> dict[str, Any]:
    """Return {sha256 of all results, {ULPs: count} of finite normal ones, the worst input}."""
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](inputs.astype(np.longdouble)).astype(np.float32)
    got = words.view(np.float32)
    normal = np.isfinite(expected) & (np.abs(expected) >= np.float32(2.0**-126)) & np.isfinite(got)
    normal &= np.isfinite(inputs) & (np.abs(inputs) >= np.float32(2.0**-126))
    steps = to_ordered_integers(words)[normal] - to_ordered_integers(expected.view(np.uint32))[normal]
    counts = {
        str(int(step)): int(count) for step, count in zip(*np.unique(steps, return_counts=True), strict=True)
    }
    worst = int(np.argmax(np.abs(steps))) if len(steps) else 0
    return {
        "sha256": hashlib.sha256(words.tobytes()).hexdigest(),
        "ulps": counts,
        "worst_input": hex(int(inputs.view(np.uint32)[normal][worst])) if len(steps) else "none",
    }


def to_ordered_integers(words: np.ndarray) -> np.ndarray:
    """Return int64 values with the same order as the floats."""
    signed = words.astype(np.int64)
    return np.where(signed >> 31 & 1, -(signed & 0x7FFFFFFF), signed)


def _make_probe(
    number: int, name: str, title: str, run: Callable[[ProbeContext], Outcome], *, tier: str = T1
) -> Probe:
    return Probe(
        f"L{number:02}", name, (tier,), 1, title, "it can be measured; the value is the fact", run, seconds=60.0
    )


PROBES = (
    _make_probe(1, "counter", "rate of the GPU's timestamps", probe_counter),
    _make_probe(2, "ids_without_enables", "ttmp9 and ttmp7 with the TGID enables clear", probe_disabled_ids),
    _make_probe(
        3, "initial_registers", "contents of registers at wave start that are not set", probe_initial_registers
    ),
    _make_probe(4, "hw_id", "which bits of HW_ID1 and HW_ID2 differ between waves", probe_hw_id),
    _make_probe(5, "hardware_registers", "what s_getreg_b32 can read", probe_hardware_registers),
    _make_probe(6, "denormals", "effect of FLOAT_MODE on denormals", probe_denormals),
    _make_probe(
        7, "assembler_float_mode", "float mode of a kernel descriptor without one", probe_assembler_float_mode
    ),
    _make_probe(8, "function_bits", "results of exp, log, rcp, rsq, sqrt, bit by bit", probe_function_bits),
    _make_probe(9, "lds_beyond", "value read beyond the end of LDS", probe_lds_out_of_range),
    _make_probe(10, "code_without_invalidate", "whether replaced code runs without GLI_INV", probe_stale_code),
    _make_probe(
        11,
        "bar_without_flush",
        "whether the BAR is coherent without HDP flush and write-back",
        probe_unflushed_bar,
    ),
    _make_probe(12, "dims_with_start", "whether dims are counts when START is used", probe_dims_with_start),
    _make_probe(13, "wmma_f16_order", "order of addition in a matrix multiply", probe_wmma_f16_order),
    _make_probe(15, "ib_nesting", "maximum nesting depth of indirect buffers", probe_ib_nesting),
    _make_probe(
        16, "sgpr_read", "whether the VALU sees a preceding write to a scalar register", probe_sgpr_hazard
    ),
    _make_probe(17, "buffer_offset", "whether the sum of a buffer's offsets wraps at 2^32", probe_buffer_offset),
    _make_probe(
        14, "protected_fence", "whether PROTECTED_FENCE_SIGNAL waits for waves", probe_protected_fence, tier=T2
    ),
)
"""One fact each, named by its title. Ids have their own letter, L for learn."""
