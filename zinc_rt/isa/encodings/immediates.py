"""The 16-bit immediates of SOPP and SOPK, and their text in LLVM's syntax."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

from zinc_rt.isa.encodings import source
from zinc_rt.isa.operand import Operand, make_immediate, name
from zinc_rt.isa.target import Target

Text = Callable[[int, Target], str]

_INSTID = (
    "", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1", "TRANS32_DEP_2", "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3",
)  # fmt: skip
_INSTSKIP = ("", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")

# Counters of s_wait_alu: name, low bit, bits.
_DEPCTR = (
    ("hold_cnt", 7, 1), ("sa_sdst", 0, 1), ("va_vdst", 12, 4), ("va_sdst", 9, 3), ("va_ssrc", 8, 1),
    ("va_vcc", 1, 1), ("vm_vsrc", 2, 3),
)  # fmt: skip
_DEPCTR_UNUSED = 3 << 5
_WAITCNT = (("vmcnt", 10, 6), ("expcnt", 0, 3), ("lgkmcnt", 4, 6))

_HWREG = {
    12: {
        1: "WAVE_MODE", 2: "WAVE_STATUS", 4: "WAVE_STATE_PRIV", 5: "WAVE_GPR_ALLOC", 6: "WAVE_LDS_ALLOC",
        7: "IB_STS", 10: "PERF_SNAPSHOT_DATA", 11: "PERF_SNAPSHOT_PC_LO", 12: "PERF_SNAPSHOT_PC_HI",
        15: "PERF_SNAPSHOT_DATA1", 16: "PERF_SNAPSHOT_DATA2", 17: "WAVE_EXCP_FLAG_PRIV",
        18: "WAVE_EXCP_FLAG_USER", 19: "WAVE_TRAP_CTRL", 20: "WAVE_SCRATCH_BASE_LO", 21: "WAVE_SCRATCH_BASE_HI",
        23: "WAVE_HW_ID1", 24: "WAVE_HW_ID2", 26: "WAVE_SCHED_MODE", 29: "SHADER_CYCLES_LO",
        30: "SHADER_CYCLES_HI", 31: "WAVE_DVGPR_ALLOC_LO", 32: "WAVE_DVGPR_ALLOC_HI",
    },
    11: {
        1: "MODE", 2: "STATUS", 3: "TRAPSTS", 5: "GPR_ALLOC", 6: "LDS_ALLOC", 7: "IB_STS", 15: "SH_MEM_BASES",
        18: "PERF_SNAPSHOT_PC_LO", 19: "PERF_SNAPSHOT_PC_HI", 20: "FLAT_SCR_LO", 21: "FLAT_SCR_HI", 23: "HW_ID1",
        24: "HW_ID2", 27: "PERF_SNAPSHOT_DATA", 29: "SHADER_CYCLES",
    },
}  # fmt: skip
_MESSAGES = {
    1: "INTERRUPT", 2: "HS_TESSFACTOR", 3: "DEALLOC_VGPRS", 9: "GS_ALLOC_REQ", 128: "RTN_GET_DOORBELL",
    129: "RTN_GET_DDID", 130: "RTN_GET_TMA", 131: "RTN_GET_REALTIME", 132: "RTN_SAVE_WAVE", 133: "RTN_GET_TBA",
    134: "RTN_GET_TBA_TO_PC",
}  # fmt: skip
_MESSAGES_OF = {12: {135: "RTN_GET_SE_AID_ID"}, 11: {5: "STALL_WAVE_GEN", 6: "HALT_WAVES"}}
_VERSIONS = {0: "UC_VERSION_GFX7", 4: "UC_VERSION_GFX10", 6: "UC_VERSION_GFX11", 9: "UC_VERSION_GFX12"}
_VERSION_BITS = ((13, "UC_VERSION_W64_BIT"), (14, "UC_VERSION_W32_BIT"), (15, "UC_VERSION_MDP_BIT"))


def format_small(value: int, target: Target | None = None) -> str:
    """Format a number: decimal in the range of inline constants, otherwise hexadecimal."""
    return str(value) if value <= 64 else f"{value:#x}"


def _format_delay_alu(value: int, target: Target) -> str:
    parts = []
    for part, low, names in (("instid0", 0, _INSTID), ("instskip", 4, _INSTSKIP), ("instid1", 7, _INSTID)):
        field = value >> low & (7 if part == "instskip" else 15)
        if field:
            shown = names[field] if field < len(names) else f"/* invalid {part.rstrip('01')} value */"
            parts.append(f"{part}({shown})")
    return " | ".join(parts) or "0"


def _format_counters(value: int, counters: tuple[tuple[str, int, int], ...], prefix: str = "") -> str:
    """Format the counters that an immediate waits for; all counters are shown if it waits for none."""
    shown = [(text, value >> low & (1 << bits) - 1, (1 << bits) - 1) for text, low, bits in counters]
    waiting = [row for row in shown if row[1] != row[2]] or shown
    return " ".join(f"{prefix}{text}({count})" for text, count, _ in waiting)


def _format_wait_alu(value: int, target: Target) -> str:
    return f"{value:#x}" if value & _DEPCTR_UNUSED else _format_counters(value, _DEPCTR, "depctr_")


def _format_waitcnt(value: int, target: Target) -> str:
    return _format_counters(value, _WAITCNT)


def _format_hwreg(value: int, target: Target) -> str:
    register, offset, size = value & 63, value >> 6 & 31, (value >> 11) + 1
    known = _HWREG[target.generation].get(register)
    text = str(register) if known is None else f"HW_REG_{known}"
    return f"hwreg({text})" if (offset, size) == (0, 32) else f"hwreg({text}, {offset}, {size})"


def _format_message(value: int, target: Target) -> str:
    known = _MESSAGES.get(value & 255) or _MESSAGES_OF[target.generation].get(value & 255)
    if known:
        return f"sendmsg(MSG_{known})"
    return f"sendmsg({value}, 0, 0)" if value < 256 else str(value)


def _format_version(value: int, target: Target) -> str:
    if value & 0x1F00:
        return f"{value:#x}"
    text = _VERSIONS.get(value & 255, str(value & 255))
    bits = [name for bit, name in _VERSION_BITS if value >> bit & 1]
    for count, bit in enumerate(bits):
        text = f"({text})|{bit}" if count else f"{text}|{bit}"
    return text


TEXTS: dict[str, Text] = {
    "imm": format_small,
    "hex": lambda value, target: f"{value:#x}",
    "dec": lambda value, target: str(value),
    "delay": _format_delay_alu,
    "depctr": _format_wait_alu,
    "waitcnt": _format_waitcnt,
    "hwreg": _format_hwreg,
    "msg": _format_message,
    "version": _format_version,
}
NUMBERS = ("imm", "hex", "dec")
KINDS = frozenset((*TEXTS, "sb"))


@cache
def make_decoder(kind: str, target: Target) -> Callable[[int, int], Operand | None]:
    """Return a function that makes an operand from an immediate. `sb` is a scalar source that cannot be a
    literal.
    """
    if kind == "sb":
        return lambda field, literal: None if field == source.LITERAL else source.make_source(field, "b32")

    text = TEXTS[kind]

    @lru_cache(maxsize=1024)
    def decode(field: int, literal: int) -> Operand:
        return (make_immediate if kind in NUMBERS else name)(text=text(field, target), value=field)

    return decode
