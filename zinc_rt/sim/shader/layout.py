"""Memory layouts shared by compiled waves and Python: wave state, thread context, records.

A compiled kernel is `i32 wave(state, context)`. Each layout is a table with one row per field. Python accesses
fields through a NumPy dtype, the IR through offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from zinc_rt.isa import Target

VGPR_LIMIT = 256
VGPR_BLOCK, VGPR_BLOCKS = 16, 8  # with dynamic VGPRs: how many come at a time; how many such a wave has at most
# SGPRs are numbered as in the encoding: s0 to s105, vcc, ttmp0 to ttmp15, null, m0, exec
VCC_LO, TTMP0, NULL, M0, EXEC_LO, EXEC_HI = 106, 108, 124, 125, 126, 127
SCC = 128  # after the SGPRs in register numbers
FP16_OVFL = 1 << 23  # of MODE: overflow of 16 or 8 bits gives the largest number
DX10_CLAMP, IEEE = 1 << 8, 1 << 9  # of MODE on gfx11 (WaveRules.has_ieee_mode)
NO_PHASE = 0xFFFFFFFF  # of a wave that has not signalled the barrier it may wait at

ALIGNMENT = 64
VGPR_ALIGNMENT = 256  # of a vector register of 64 lanes


class Status(IntEnum):
    """The return value of a wave function."""

    DONE = 0
    BARRIER = 1  # runs on once the group's barrier phase is past `barrier_phase`
    FUEL = 2  # used up; runs on when called again
    FAULT = 3  # context: fault_va, fault_lanes, fault_access; state: pc
    ILLEGAL = 4  # state: pc, site: the sentence
    HALT = 5  # s_sethalt, s_trap: state: pc, site


class WaveAccess(IntEnum):
    """The kind of access that caused a fault."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    SCALAR_READ = 3


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks to compile in; part of the cache key.

    level: off (virtual memory only), fast (+ bounds, alignment, initialised bytes), full (+ races, EXEC lint,
    barrier misuse). perturb: exp, log, rcp, rsq, sqrt, sin, cos move by -1, 0 or +1 ULP, by context.perturb_seed.
    trace: record the instructions of the chosen wave. profile: count the executions of each block. debug: waves
    can stop before any instruction (emit/debug.py). reverse_lanes: memory instructions access the highest lane
    first, which changes the last of several stores to the same bytes, and what atomics return.
    """

    level: str = "full"
    perturb: bool = False
    trace: bool = False
    profile: bool = False
    debug: bool = False
    reverse_lanes: bool = False
    defect: bool = False  # results pass the defect of the context (sim.defects)
    wmma_f16_order: tuple[tuple[int, int, int], ...] = ()  # sim.facts: one by one; empty: by steps
    buffer_offset: str = "outside"  # sim.facts

    def __post_init__(self) -> None:
        if self.level not in ("off", "fast", "full"):
            raise ValueError(f"unknown level {self.level!r}: expected off, fast or full")

    @property
    def fast(self) -> bool:
        """Return whether the checks of mode fast are compiled in; full includes them."""
        return self.level != "off"

    @property
    def full(self) -> bool:
        return self.level == "full"


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """Machine code with its compilation parameters.

    `full`: EXEC is all ones at the entry; the function is only valid for such waves. `vgprs`: the number of VGPRs;
    others do not exist. `user_sgprs`: the number of SGPRs with user data and workgroup ids. `entry`: byte offset
    of the first instruction. `dynamic_vgprs`: the wave starts with VGPR_BLOCK VGPRs and changes the number with
    s_alloc_vgpr.
    `mode`: the initial bits of MODE that arithmetic depends on (emit/float_mode.py).
    """

    code: bytes
    target: Target
    full: bool
    checks: Checks
    vgprs: int
    user_sgprs: int
    entry: int = 0
    mode: int = 0xF0
    dynamic_vgprs: bool = False

    @property
    def wave(self) -> int:
        return self.target.wave


IN_LDS = "in the LDS"  # the text of sites whose findings have an address in the LDS


@dataclass(frozen=True, slots=True)
class Site:
    """The site of a report or an exit: the instruction's byte offset, the rule, further details."""

    pc: int
    rule: str
    text: str = ""


_BYTES = {"u8": 1, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "ptr": 8}
_NUMPY = {"u8": "u1", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8", "ptr": "<u8"}


@dataclass(frozen=True, slots=True)
class RecordField:
    offset: int
    type: str  # u8 u32 i32 u64 i64 ptr
    count: int


class RecordLayout:
    """A record layout with rows `type name [count]`, each naturally aligned, padded to 64 bytes (or to
    `padded`).
    """

    def __init__(self, rows: str, padded: int = ALIGNMENT) -> None:
        self.fields: dict[str, RecordField] = {}
        end = 0
        for line in rows.strip().splitlines():
            kind, name, *rest = line.split("#")[0].split()
            width = _BYTES[kind]
            offset = -(-end // width) * width
            count = int(rest[0]) if rest else 1
            if name in self.fields:
                raise ValueError(f"field {name} twice")
            self.fields[name] = RecordField(offset, kind, count)
            end = offset + width * count
        self.size_bytes = -(-end // padded) * padded

    @cached_property
    def dtype(self) -> np.dtype:
        fields = self.fields.values()
        kinds = [(_NUMPY[f.type], (f.count,)) if f.count > 1 else _NUMPY[f.type] for f in fields]
        return np.dtype(
            {
                "names": list(self.fields),
                "formats": kinds,
                "offsets": [f.offset for f in fields],
                "itemsize": self.size_bytes,
            }
        )


_VIEW = {"u8": "B", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "ptr": "Q"}
_WIDTH = {"u8": 1, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "ptr": 8}


def aligned(size_bytes: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """Allocate [size_bytes] uint8 zeros at a multiple of `alignment`; the address is fixed for the lifetime of the
    array.
    """
    raw = np.zeros(size_bytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size_bytes]


class RecordBlock:
    """A record in memory. `block["name"]` reads and sets a scalar field; `record` is a NumPy view of the whole
    record.
    """

    __slots__ = ("_places", "address", "memory", "record")

    def __init__(self, layout: RecordLayout) -> None:
        self.memory = aligned(layout.size_bytes)
        self.address = int(self.memory.ctypes.data)
        self.record = self.memory.view(layout.dtype)[0]
        view = memoryview(self.memory.data)
        views = {kind: view.cast(code) for kind, code in _VIEW.items()}  # type: ignore[call-overload]
        self._places = {
            name: (views[field.type], field.offset // _WIDTH[field.type]) for name, field in layout.fields.items()
        }

    def __getitem__(self, name: str) -> int:
        view, index = self._places[name]
        return int(view[index])

    def __setitem__(self, name: str, value: int) -> None:
        view, index = self._places[name]
        view[index] = value


STATE = RecordLayout(
    """
u32 resume              # 0 at first; where the wave goes on, set at a suspension
u32 status
u32 pc                  # of the last stop: byte offset in the kernel
u32 site                # of ILLEGAL and HALT: index in the site table
u32 spins               # 1: its last turn ended because its fuel was used up
u32 wave_in_group
u32 group               # linear workgroup index in the dispatch
u32 group_x
u32 group_y
u32 group_z
u32 wave_index          # of all waves in the dispatch; says which is traced
u32 barrier_phase       # phase at this wave's last signal, NO_PHASE before and after its wait
u32 barrier_pc          # of its last signal
u32 lds_bytes
u64 lds_base            # host address of the group's LDS
u64 lds_shadow          # host address of lds_shadow_bytes(): bytes per dword, then race records
u64 scratch_base        # host address: dword d of lane i at + (d * wave + i) * 4
u64 scratch_shadow      # host address of scratch_bytes / 4 * wave bytes in the same order, zeros at first
u32 scratch_bytes       # per lane
u32 acquired            # 1: has executed global_inv of device or system scope (level full)
u64 waves_seen          # of the workgroup, whose atomic stores it has seen since the last barrier (level full)
u64 waves_acquired      # those of them that it has acquired since, by global_inv
u64 memory_waves_seen   # those of waves_seen whose store was to global memory
u64 memory_waves_acquired
u32 vgprs               # with dynamic VGPRs: how many the wave has now
u64 vgpr_random         # what its last s_alloc_vgpr was decided by
u32 scc
u32 sgprs 128
u32 sgpr_undefined 129  # of a suspended wave: bits that nobody has defined; [128] is SCC
""",
    padded=VGPR_ALIGNMENT,
)
"""Followed by the VGPRs, `wave` u32 each, then as many of their undefined bits, which like VGPRs are unspecified
before the first suspension: see state_bytes."""

CONTEXT = RecordLayout("""
i64 fuel                # about instructions; backward branches take from it
ptr findings            # FINDING[findings_capacity]
u32 findings_capacity
u32 findings_count      # may exceed the capacity
ptr sites               # SITE_STATE[the kernel's sites], zeros at first
u64 program_va          # of byte 0 of the kernel
u32 group_waves         # waves of the group that take part in barriers
u32 barrier_signals     # in this phase
u32 barrier_phase
u32 acquired_phase      # 1 + the first phase in which a wave of the group set STATE.acquired; 0: none (level full)
u32 mode                # MODE register
u64 realtime            # counts up at each read, 100 MHz
u64 cycles
u32 hw_id1
u32 hw_id2
u64 vector_cache        # host address of the wave's L0, CACHE_LINE[VECTOR_CACHE.lines]; 0: no caches
u64 scalar_cache        # of its workgroup processor's scalar cache, CACHE_LINE[SCALAR_CACHE.lines]
u64 array_cache         # of its shader array's GL1 (gfx11), CACHE_LINE[ARRAY_CACHE.lines]
u64 shared_base         # apertures of flat addresses
u64 private_base
u64 fault_va
u64 fault_lanes
u32 fault_access        # WaveAccess
u32 ranges_count
ptr ranges              # RANGE[ranges_count]: what accesses must stay inside (ranges.py)
ptr spans               # RANGE[spans_count]: what is mapped
u32 spans_count
u32 serial              # of the dispatch, from 1: what race records and RANGE.stored are compared with
ptr memory_sites        # MEMORY_SITE[Translation.counts["memory"]], zeros at first
ptr extents             # EXTENT[4 kinds of WaveAccess, ranges_count], zeros at first
ptr save_pages          # void(va, size in bytes): called before a page of a SAVED range is first stored to
u64 watch_lo            # stores that touch these addresses are recorded; both 0: none
u64 watch_hi
ptr watch               # WATCH[watch_capacity]
u32 watch_capacity
u32 watch_count         # may exceed the capacity
u64 race_entry          # of the last access that raced: the entry of the other access,
u32 race_site           # and its site; bit 31: it reads
u64 perturb_seed
u64 vgpr_seed           # not 0: s_alloc_vgpr that asks for more fails now and then
u32 defect_lane         # Checks.defect: results of this lane
u32 defect_register     # in this VGPR, 0xffffffff: in any
u32 defect_any          # 1: whatever they are; 0: if they equal
u32 defect_value
u32 defect_flip         # become (result ^ flip) | stuck
u32 defect_stuck
ptr records             # of a kernel that consists of records (emit/form.py)
ptr profile             # u64 per block (Checks.profile)
ptr trace               # TRACE records (Checks.trace)
u32 trace_capacity
u32 trace_count         # may exceed the capacity
u32 trace_wave          # wave_index of the traced wave, or EVERY_WAVE
ptr debug               # DEBUG (Checks.debug)
""")

RANGE = RecordLayout("""
u64 va_lo
u64 va_hi
u64 delta               # host address - VA
u64 shadow              # + VA / 4: the byte that says which of the dword's bytes are initialised
u64 saved               # + VA / 4096: the byte that says whether the page has been saved (RangeFlag.SAVED)
u64 races               # + VA / 4 * RACE.size_bytes: the dword's RACE record (level full), 0: none
u32 flags               # RangeFlag
u32 index
u32 stored              # serial of the last dispatch that stored to it (level full)
""")

CACHE_LINE = RecordLayout("""
u64 tag                 # the line's VA, bit 0 set; 0: holds nothing
u64 filled              # serial of the dispatch that loaded it
u64 from_stale          # 1: the line of GL1 that it was loaded from was older than memory
u8 data 128             # as memory was then, with the stores of the cache's own waves
""")


@dataclass(frozen=True, slots=True)
class CacheShape:
    """A direct-mapped cache of `lines` lines with `line_bytes` bytes each."""

    lines: int
    line_bytes: int

    @property
    def size_bytes(self) -> int:
        """Return the size of its CACHE_LINE records."""
        return self.lines * CACHE_LINE.size_bytes


CACHE_PROCESSORS = 2  # workgroup processors that have caches of their own; the others share theirs by turns
VECTOR_CACHE = CacheShape(lines=256, line_bytes=128)  # L0 of a compute unit: 32 KiB
SCALAR_CACHE = CacheShape(lines=256, line_bytes=64)  # of a workgroup processor: 16 KiB
ARRAY_CACHE = CacheShape(lines=2048, line_bytes=128)  # GL1 of a shader array: 256 KiB

RACE = RecordLayout(
    """
u64 stored              # who stored last, and who read since: races.py
u64 read
u32 stored_site         # the instructions of these: the first site of each
u32 read_site
""",
    padded=8,
)

KEPT = 7  # intervals of a MEMORY_SITE, in addition to the one that it extends
INTERVAL = RecordLayout(
    """
u64 lo
u64 hi                  # 0: none
ptr range               # the RANGE that contains it
""",
    padded=8,
)

MEMORY_SITE = RecordLayout(
    f"""
u64 plain_lo            # wide accesses that start less than `room` behind this address need no more checks
u64 room
u64 touched_lo          # the interval in the range that it is extending (memory/touched.py)
u64 touched_hi          # touched_lo: none
u64 slack               # an access at most this far from an interval extends it
u64 delta
u64 va_lo               # the range that this instruction last used
u64 va_hi
ptr range               # its RANGE
u32 flags               # its RangeFlag, and PLAIN
u32 kind                # WaveAccess
u64 reach               # how far the initialised bytes behind an access were looked through last time
u64 kept {KEPT * INTERVAL.size_bytes // 8}             # INTERVAL[KEPT]: other intervals, in any range
u32 stowed              # how many have been kept so far
""",
    padded=16,
)
PLAIN, WATCHED = 0x100, 0x200
"""In MEMORY_SITE.flags: only the range must be checked; some of it is monitored for stores."""

EXTENT = RecordLayout(
    """
u64 touched_below       # ~ the lowest VA of the intervals that did not fit into their MEMORY_SITE
u64 touched_above       # the VA after the highest; 0: none
""",
    padded=16,
)

WATCH = RecordLayout(
    """
u32 site                # its pc is the storing instruction's
u32 wave
u32 group
u32 lane
u64 address
u64 value               # the lowest 8 bytes
""",
    padded=32,
)

FIXED = frozenset(
    (
        "program_va", "group_waves", "mode", "hw_id1", "hw_id2", "shared_base", "private_base", "memory_sites",
        "serial", "perturb_seed", "vgpr_seed", "profile", "trace_wave", "defect_lane", "defect_register",
        "defect_any", "defect_value", "defect_flip", "defect_stuck",
    )
)  # fmt: skip
"""Fields of the context that stay as they are while a wave runs."""

FINDING = RecordLayout(
    """
u32 site
u32 wave
u32 group
u32 end_pc              # of SITE_BARRIER: where the first of the ended waves ended
u64 lanes
u64 address             # of the first lane, 0 without
u64 other_entry         # of a race: race_entry and race_site of the context
u32 other_site
""",
    padded=16,
)
READS = 1 << 31
"""In race_site: the other access is a load."""

SITE_STATE = RecordLayout(
    """
u32 count               # findings recorded
u32 wave                # of the last one, + 1
u32 group
u32 reserved
""",
    padded=16,
)
SITE_BARRIER = 0xFFFFFFFE
"""In a FINDING, a barrier that not all waves reached: `address` is the pc at which `wave` signalled it, `lanes`
has a bit for each ended wave, `end_pc` is the pc at which the first of these ended."""

FINDINGS_PER_SITE = 64  # records of one site; so one loop cannot fill the buffer

TRACE = RecordLayout(
    """
u32 pc
u32 slot                # register: 0 to 255 VGPR, 256 + n SGPR, 0xffffffff none (instruction without a result)
u64 exec
u32 values 64           # a VGPR's lanes, or an SGPR's value in [0]
u32 wave                # its wave_index
""",
    padded=8,
)
NO_SLOT = 0xFFFFFFFF
EVERY_WAVE = 0xFFFFFFFF


def state_bytes(wave: int, vgprs: int) -> int:
    """Return the size of a wave's state with its registers and their undefined bits; must be 64-byte aligned."""
    return STATE.size_bytes + 2 * vgprs * wave * 4
