"""P32 to P35, P38: launch of waves, and their ids."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any

from zinc_rt.probes.groups.cp_basic import FAULTED, NOT_FETCHED
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32, MappedBuffer
from zinc_rt.probes.kit.shaders import TGID_FIELD, ShaderBench, Triple, read_dwords, require_gfx12
from zinc_rt.probes.outcome import (
    T1,
    T2,
    Outcome,
    ProbeFailed,
    Signature,
    check,
    is_device_lost,
    match_message,
    passed,
    symptom,
)
from zinc_rt.probes.probe import fails, fails_like, probe, proves

VALUE = 0x1234_5678
GRID, GROUP = (5, 3, 2), (8, 4, 2)
START, COUNT = (2, 1, 1), (3, 2, 1)
LANE_GROUPS = 4
USER_DATA = tuple(0xD0D0_0000 + index for index in range(2, 16))
Ids = Counter[tuple[Triple, Triple]]
"""(workgroup, work-item) -> number of reports."""

_CACHES = Signature(
    symptom("nothing-stored"),
    (
        "the wave ran but its store did not arrive: user data not loaded (wrong address), or L2 not "
        "written back before the host read"
    ),
    "the fence must write back GL2 (GL2_WB, P41); USER_DATA and USER_SGPR must agree (P34)",
)
_GONE = Signature(
    is_device_lost,
    "the device disappeared when waves started: a crash of the card, or of a simulated device's process",
    "`dmesg | grep -iE 'amdgpu|pcie'`; a simulated device leaves a crash record: send it with --bundle",
)
SHADER_SHARED = (_GONE, FAULTED, NOT_FETCHED)


@probe("P32", "empty dispatch", (T1, T2), hazard=1, needs=("P20", "P30"))
@proves("waves start and end", passes_when="a fence after a kernel of one instruction, in wave32 and wave64")
@fails_like(_GONE)
@fails(
    match_message("page fault"),
    (
        "the code's address is wrong: PGM_LO and PGM_HI contain it shifted right by 8, and its memory "
        "must be executable"
    ),
    "compare the fault's address with the code's address in the report",
)
@fails_like(NOT_FETCHED)
@fails(
    symptom("no-fence", "rptr-stopped"),
    "the launch never ends: COMPUTE_SHADER_EN (initiator bit 0), RSRC words, code that is not "
    "256-byte aligned, or a stale instruction cache",
    "-k P31 tests the registers; GLI_INV must precede the first launch; `dmesg | grep -i amdgpu`",
)
@require_gfx12
def probe_empty_kernel(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    for wave in (32, 64):
        bench.run(bench.load("empty", wave=wave))
    return passed(waves="wave32, wave64")


@probe("P33", "store constant", (T1, T2), hazard=1, needs=("P32",))
@proves(
    "a lane's store reaches memory, with an argument and a constant patched into its code",
    passes_when=f"{VALUE:#x} in its dword, the following one unchanged",
)
@fails_like(_GONE)
@fails(
    match_message("page fault"),
    "the pointer's halves are swapped, or it was read before the scalar load was waited for",
    "compare the fault's address with the argument's in the report",
)
@fails_like(NOT_FETCHED, _CACHES)
@fails(
    symptom("wrong-value"),
    (
        "different code ran than was loaded: a stale instruction cache, or the constant was patched at "
        "another offset"
    ),
    "-k P40; `zinc-rt isa disasm --zrt probes/kernels/store.zrt` shows the slot",
)
@fails(symptom("neighbours"), "more than one lane stored", "EXEC differs from the value set by the code: -k P35")
@require_gfx12
def probe_store(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    got = struct.unpack("<2I", run_store(bench))
    return passed(stored=hex(got[0]))


def run_store(bench: ShaderBench) -> bytes:
    out = allocate_result(bench, 64)
    bench.run(bench.load("store", VALUE=VALUE), [out])
    got = read_dwords(out, 2)
    check(
        got[0] == VALUE,
        "nothing-stored" if got[0] == POISON32 else "wrong-value",
        f"the lane's dword holds {got[0]:#x}, not {VALUE:#x}",
        evidence=bench.queue.collect_evidence(),
    )
    check(got[1] == POISON32, "neighbours", f"the dword after the stored one is {got[1]:#x}")
    return out.read(0, 8)


def allocate_result(bench: ShaderBench, size_bytes: int, name: str = "out") -> MappedBuffer:
    memory = bench.context.memory(-(-size_bytes // 4096) * 4096, name)
    memory.poison()
    return memory


@probe("P34", "user SGPRs and ids", (T1, T2), hazard=1, needs=("P33",))
@proves(
    "waves receive their arguments and their position in a 3-D grid",
    passes_when=f"s0 to s15 as written; every id of a {GRID} grid of {GROUP} workgroups exactly once",
)
@fails_like(*SHADER_SHARED, _CACHES)
@fails(
    symptom("wrong-user-data"),
    "USER_SGPR of RSRC2 counts fewer registers than were written, or the offset of USER_DATA_0 differs",
    "-k P31 reads the registers back",
)
@fails(
    symptom("ids-zero"),
    "on gfx12 the ids are in ttmp9 and ttmp7 and need TGID_X_EN to TGID_Z_EN; on gfx11 in SGPRs "
    "behind the user data",
    "RSRC2 bits 7 to 9; the note `without enables` describes this chip's behaviour without them",
)
@fails(symptom("ids-swapped"), "y is ttmp7[15:0], z is ttmp7[31:16]", "this chip has them in the opposite order")
@fails(
    symptom("wrong-items"),
    "v0 is packed on gfx11 and later (x 9:0, y 19:10, z 29:20), and needs TIDIG_COMP_CNT 2",
    "RSRC2 bits 12:11",
)
@fails(
    symptom("wrong-count", "wrong-ids"),
    "the grid differs from the requested one: the order of DIM or NUM_THREAD registers",
    "-k P31; NUM_THREAD follows START in one SET_SH_REG",
)
@require_gfx12
def probe_user_data_and_ids(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    read_user_data(bench)
    ids = read_ids(bench, GRID, GROUP)
    expect_ids(ids, list_ids(GRID), list_ids(GROUP))
    return passed(user_sgprs=16, ids=sum(ids.values()), without_enables=read_disabled_ids(bench))


def read_user_data(bench: ShaderBench) -> bytes:
    out = allocate_result(bench, 64)
    va = out.gpu_va
    want = (va & 0xFFFFFFFF, va >> 32, *USER_DATA)
    bench.run(bench.load("user_data"), user_data=want)
    got = read_dwords(out, 16)
    if got != want:
        location = next(i for i in range(16) if got[i] != want[i])
        word = "nothing-stored" if set(got) == {POISON32} else "wrong-user-data"
        raise ProbeFailed(
            word, f"s{location} holds {got[location]:#x}, USER_DATA_{location} was {want[location]:#x}"
        )
    return out.read(8, 56)


def read_ids(bench: ShaderBench, groups: Triple, threads: Triple, **more: Any) -> Ids:
    """Return the ids reported by every work-item. The grid must not have more than RECORDS work-items."""
    taken, records = allocate_result(bench, 64, "taken"), allocate_result(bench, 16 * RECORDS, "records")
    taken.put32(0, 0)
    bench.run(bench.load("ids"), [taken, records], [RECORDS], groups=groups, threads=threads, **more)
    count = taken.u32(0)
    check(count <= RECORDS, "wrong-ids", f"{count} work-items ran, at most {RECORDS} were requested")
    ids: Ids = Counter()
    for index in range(count):
        group_x, group_yz, item, _ = struct.unpack("<4I", records.read(16 * index, 16))
        ids[(group_x, group_yz & 0xFFFF, group_yz >> 16), unpack_id(item)] += 1
    return ids


RECORDS = 4096


def unpack_id(item: int) -> Triple:
    return item & 0x3FF, item >> 10 & 0x3FF, item >> 20


def list_ids(sizes: Triple, start: Triple = (0, 0, 0)) -> list[Triple]:
    x, y, z = (range(first, first + size) for first, size in zip(start, sizes, strict=True))
    return [(i, j, k) for i in x for j in y for k in z]


def expect_ids(ids: Ids, groups: Iterable[Triple], items: list[Triple]) -> None:
    """Check that every id occurs once. The kind of error indicates the cause."""
    want: Ids = Counter((group, item) for group in groups for item in items)
    if ids == want:
        return
    total, expected = sum(ids.values()), sum(want.values())
    seen_groups, seen_items = {group for group, _ in ids}, {item for _, item in ids}
    wanted_groups = {group for group, _ in want}
    measure = {"ran": total, "wanted": expected, "groups": len(seen_groups), "items": len(seen_items)}
    if total != expected:
        word, how = "wrong-count", f"{total} work-items ran, not {expected}"
    elif seen_groups == {(0, 0, 0)}:
        word, how = "ids-zero", "every workgroup reports (0, 0, 0)"
    elif seen_groups == {(x, z, y) for x, y, z in wanted_groups}:
        word, how = "ids-swapped", "y and z of the workgroup are swapped"
    elif seen_groups == wanted_groups:
        word, how = "wrong-items", f"{len(seen_items)} different work-item ids, not {len(set(items))}"
    else:
        extra = sorted(seen_groups - wanted_groups)[:1] or sorted(wanted_groups - seen_groups)[:1]
        word, how = (
            "wrong-ids",
            f"workgroup ids differ from those of the grid, for example {extra[0] if extra else 'one'}",
        )
    raise ProbeFailed(word, how, measure=measure)


def read_disabled_ids(bench: ShaderBench) -> str:
    """Return the workgroup ids when RSRC2 does not enable them: filled, zero, or other. Informative."""
    taken, records = allocate_result(bench, 64, "taken"), allocate_result(bench, 16 * RECORDS, "records")
    taken.put32(0, 0)
    program = bench.load("ids")
    bench.run(program, [taken, records], [RECORDS], groups=GRID, threads=(1, 1, 1), clear=TGID_FIELD)
    count = min(taken.u32(0), RECORDS)
    rows = [struct.unpack("<2I", records.read(16 * index, 8)) for index in range(count)]
    seen = {(x, yz & 0xFFFF, yz >> 16) for x, yz in rows}
    if seen == set(list_ids(GRID)):
        return "filled"
    return "zero" if seen == {(0, 0, 0)} else "other"


@probe("P35", "wave32 and wave64", (T1, T2), hazard=1, needs=("P33",))
@proves(
    "the initiator selects the wave size, and lanes are numbered",
    passes_when="EXEC is 32 and 64 lanes wide for the same code; lanes 0 to 31, 0 to 63",
)
@fails_like(*SHADER_SHARED, _CACHES)
@fails(
    symptom("wrong-width"),
    "initiator bit 15 (CS_W32_EN) and the code disagree about the wave size",
    "0x8005 launches wave32, 0x0005 wave64; RSRC1 counts VGPRs in units of 8 and 4",
)
@fails(symptom("wrong-lane"), "v0 or mbcnt count differently in this mode", "please report the chip")
@require_gfx12
def probe_lanes(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    for wave in (32, 64):
        run_lanes(bench, wave)
    return passed(waves="wave32, wave64", work_items=2 * LANE_GROUPS * 64)


def run_lanes(bench: ShaderBench, wave: int) -> bytes:
    out = allocate_result(bench, 8 * 64 * LANE_GROUPS)
    bench.run(bench.load("lanes", wave=wave), [out], groups=(LANE_GROUPS, 1, 1))
    got = read_dwords(out, 2 * 64 * LANE_GROUPS)
    widths, numbers = got[::2], got[1::2]
    check(POISON32 not in widths, "nothing-stored", "not every work-item has stored its lane")
    wrong = sorted({width for width in widths if width != wave})
    check(not wrong, "wrong-width", f"EXEC is {wrong[:1]} lanes wide in a launch of wave{wave}")
    want = tuple(index % wave for index in range(len(numbers)))
    check(numbers == want, "wrong-lane", f"lane numbers of wave{wave} are not 0 to {wave - 1} in order")
    return out.read(0, 4 * len(got))


@probe("P38", "DISPATCH_INDIRECT, START", (T1, T2), hazard=1, needs=("P34",))
@proves(
    "the grid can be read from memory, and start at other ids than 0",
    passes_when=f"the ids of {GRID} read from memory; ids from {START} on",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("start-ignored"),
    "START is not used: FORCE_START_AT_000 (initiator bit 2) is set, or the register order differs",
    "initiator 0x8001 with START_X to START_Z before NUM_THREAD",
)
@fails(
    symptom("wrong-count", "wrong-ids", "wrong-items", "ids-zero", "ids-swapped"),
    "the packet was parsed in the graphics engine's form (three dwords, an offset to SET_BASE)",
    "the compute form has four dwords with a full address; compare the packet in the report",
)
@require_gfx12
def probe_indirect_and_start(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    dims = c.memory(4096, "dims")
    dims.put(0, struct.pack("<3I", *GRID))
    expect_ids(read_ids(bench, GRID, GROUP, dims_va=dims.gpu_va), list_ids(GRID), list_ids(GROUP))
    end = tuple(first + count for first, count in zip(START, COUNT, strict=True))
    seen = read_ids(bench, (end[0], end[1], end[2]), (4, 1, 1), start=START)
    meaning = classify_start({group for group, _ in seen})
    groups = list_ids(COUNT, START) if meaning == "end" else list_ids((end[0], end[1], end[2]), START)
    expect_ids(seen, groups, list_ids((4, 1, 1)))
    return passed(dims_with_start=meaning)


def classify_start(groups: set[Triple]) -> str:
    """Determine whether, with START, the packet's dims are the end of the ids or their count; sources
    differ."""
    first = tuple(min((group[axis] for group in groups), default=-1) for axis in range(3))
    check(first == START, "start-ignored", f"the first workgroup is {first}, START says {START}")
    return "end" if len(groups) == COUNT[0] * COUNT[1] * COUNT[2] else "count"
