"""Every opcode with a name on these chips, and which engine and generation takes it.

Sources: PAL gfx12_merged_pm4_it_opcodes.h and gfx9_plus_merged_pm4_it_opcodes.h (numbers), the MEC packet headers
beside them (what the compute engine takes), Mesa pm4_it_opcodes_gfx12.h (0xD0-0xD2, 0xEF).
"""

from __future__ import annotations

from enum import IntEnum


class Opcode(IntEnum):
    """The compute engine's (MEC's) packets on gfx11 or gfx12."""

    NOP = 0x10
    SET_BASE = 0x11
    DISPATCH_DIRECT = 0x15
    DISPATCH_INDIRECT = 0x16
    ATOMIC_GDS = 0x1D
    ATOMIC_MEM = 0x1E
    COND_EXEC = 0x22
    PRED_EXEC = 0x23
    WRITE_DATA = 0x37
    WAIT_REG_MEM = 0x3C
    PERF_COUNTER_WINDOW = 0x3D
    INDIRECT_BUFFER = 0x3F  # with 14 dwords: COND_INDIRECT_BUFFER
    COPY_DATA = 0x40
    COND_WRITE = 0x45
    EVENT_WRITE = 0x46
    RELEASE_MEM = 0x49
    DMA_DATA = 0x50
    PERFMON_CONTROL = 0x54
    ACQUIRE_MEM = 0x58
    REWIND = 0x59
    INDIRECT_BUFFER_PASID = 0x5C
    PRIME_UTCL2 = 0x5D
    LOAD_SH_REG_INDEX = 0x63
    SET_CONFIG_REG = 0x68
    SET_SH_REG = 0x76
    SET_QUEUE_REG = 0x78
    SET_UCONFIG_REG = 0x79
    WAIT_REG_MEM64 = 0x93
    HDP_FLUSH = 0x95
    INVALIDATE_TLBS = 0x98
    DMA_DATA_FILL_MULTI = 0x9A
    SET_SH_REG_INDEX = 0x9B
    DISPATCH_TASK_STATE_INIT = 0xA9
    DISPATCH_TASKMESH_DIRECT_ACE = 0xAA
    DISPATCH_TASKMESH_INDIRECT_MULTI_ACE = 0xAD
    TIMESTAMP = 0xB2
    EXECUTE_INDIRECT_V2 = 0xB4
    SET_SH_REG_PAIRS = 0xBA
    SET_SH_REG_PAIRS_PACKED = 0xBC
    SET_SH_REG_PAIRS_PACKED_N = 0xBD
    SET_UCONFIG_REG_PAIRS = 0xBE
    PROTECTED_FENCE_SIGNAL = 0xD0
    FENCE_WAIT_MULTI = 0xD1
    CLEANER_SHADER = 0xD2


OTHER_ENGINES = {  # known to the graphics engines or the kernel's own queue, never to a compute queue
    0x12: "CLEAR_STATE",
    0x13: "INDEX_BUFFER_SIZE",
    0x17: "INDIRECT_BUFFER_END",
    0x1F: "OCCLUSION_QUERY",
    0x20: "SET_PREDICATION",
    0x21: "REG_RMW",
    0x24: "DRAW_INDIRECT",
    0x25: "DRAW_INDEX_INDIRECT",
    0x26: "INDEX_BASE",
    0x27: "DRAW_INDEX_2",
    0x28: "CONTEXT_CONTROL",
    0x2A: "INDEX_TYPE",
    0x2C: "DRAW_INDIRECT_MULTI",
    0x2D: "DRAW_INDEX_AUTO",
    0x2F: "NUM_INSTANCES",
    0x30: "DRAW_INDEX_MULTI_AUTO",
    0x32: "INDIRECT_BUFFER_PRIV",
    0x33: "INDIRECT_BUFFER_CNST",
    0x34: "STRMOUT_BUFFER_UPDATE",
    0x35: "DRAW_INDEX_OFFSET_2",
    0x36: "DRAW_PREAMBLE",
    0x38: "DRAW_INDEX_INDIRECT_MULTI",
    0x39: "MEM_SEMAPHORE",
    0x42: "PFP_SYNC_ME",
    0x43: "SURFACE_SYNC",
    0x44: "ME_INITIALIZE",
    0x47: "EVENT_WRITE_EOP",
    0x48: "EVENT_WRITE_EOS",
    0x4A: "PREAMBLE_CNTL",
    0x4C: "DISPATCH_MESH_INDIRECT_MULTI",
    0x4D: "DISPATCH_TASKMESH_GFX",
    0x4E: "DISPATCH_MESH_DIRECT",
    0x51: "CONTEXT_REG_RMW",
    0x5E: "LOAD_UCONFIG_REG",
    0x5F: "LOAD_SH_REG",
    0x60: "LOAD_CONFIG_REG",
    0x61: "LOAD_CONTEXT_REG",
    0x64: "LOAD_UCONFIG_REG_INDEX",
    0x69: "SET_CONTEXT_REG",
    0x6A: "SET_CONTEXT_REG_INDEX",
    0x73: "SET_CONTEXT_REG_INDIRECT",
    0x77: "SET_SH_REG_OFFSET",
    0x7A: "SET_UCONFIG_REG_INDEX",
    0x84: "INCREMENT_CE_COUNTER",
    0x86: "WAIT_ON_CE_COUNTER",
    0x8B: "SWITCH_BUFFER",
    0x90: "FRAME_CONTROL",
    0x91: "INDEX_ATTRIBUTES_INDIRECT",
    0x9C: "DRAW_INDIRECT_COUNT_MULTI",
    0x9D: "DRAW_INDEX_INDIRECT_COUNT_MULTI",
    0x9F: "LOAD_CONTEXT_REG_INDEX",
    0xA0: "SET_RESOURCES",
    0xA1: "MAP_PROCESS",
    0xA2: "MAP_QUEUES",
    0xA3: "UNMAP_QUEUES",
    0xA4: "QUERY_STATUS",
    0xA5: "RUN_LIST",
    0xA6: "MAP_PROCESS_VM",
    0xA7: "DISPATCH_DIRECT_INTERLEAVED",
    0xA8: "DISPATCH_INDIRECT_INTERLEAVED",
    0xAE: "EXECUTE_INDIRECT",
    0xAF: "BUILD_UNTYPED_SRD",
    0xB1: "EVENT_WRITE_ZPASS",
    0xB8: "SET_CONTEXT_REG_PAIRS",
    0xB9: "SET_CONTEXT_REG_PAIRS_PACKED",
    0xC0: "LOAD_BUFFER_FILLED_SIZES",
    0xC1: "SET_BUFFER_FILLED_SIZE",
    0xC2: "SAVE_BUFFER_FILLED_SIZES",
    0xC3: "STREAMOUT_STATS_QUERY",
    0xEF: "UPDATE_DB_SUMMARIZER_TIMEOUTS",
    0xFF: "AQL_PACKET",
}

BAD_OPCODE = 0xF2
"""For negative tests: IGT's choice, unnamed in every table read."""


def opcode_name(opcode: int) -> str:
    """The name, whichever engine takes it, or `opcode 0xNN`."""
    try:
        return Opcode(opcode).name
    except ValueError:
        return OTHER_ENGINES.get(opcode, f"opcode {opcode:#04x}")
