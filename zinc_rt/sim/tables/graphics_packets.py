"""Packets that the graphics engine takes in addition to those of the compute engine, or in another form.

Source: PAL (GPUOpen-Drivers/pal, c5e80007 of April 2025), gfx12_merged_pm4_it_opcodes.h,
gfx12_merged_f32_me_pm4_packets.h and gfx12_merged_f32_pfp_pm4_packets.h; Mesa's ac_cmdbuf.c and radv_queue.c for
the ones that programs without drawing send.
"""

from __future__ import annotations

from zinc_rt.sim.tables.layout import PacketRow, parse_rows
from zinc_rt.sim.tables.packets import ROWS

CONTEXT_BASE, CONTEXT_END = 0xA000, 0xC000  # registers of SET_CONTEXT_REG, as absolute dword addresses

_ADDED = """
CLEAR_STATE 0x12 2
    command 1[3:0]
SET_PREDICATION 0x20 4
    operation 1[18:16]; hint 1[12]; visible 1[8]; address 2+3
CONTEXT_CONTROL 0x28 3
    load 1; shadow 2
PFP_SYNC_ME 0x42 2
    dummy 1
PREAMBLE_CNTL 0x4a 2
    command 1
SET_CONTEXT_REG 0x69 3+1
    register 1[15:0]; index 1[31:28]; values values 2..
SET_UCONFIG_REG_INDEX 0x7a 3+1
    register 1[15:0]; index 1[31:28]; values values 2..
SET_CONTEXT_REG_PAIRS 0xb8 3+2
    writes pairs 1..
SET_CONTEXT_REG_PAIRS_PACKED 0xb9 5+3
    writes_count 1; writes packed 2..
UPDATE_DB_SUMMARIZER_TIMEOUTS 0xef 2 gfx12
    timeouts 1
"""
ADDED = parse_rows(_ADDED)

_CHANGED = """
WRITE_DATA 0x37 5+1
    dst_sel 1[11:8] = 0 2 5 6; same_address 1[16]; wr_confirm 1[20]; aid_id 1[24:23]; cache_policy 1[26:25];
    engine 1[31:30]; address 2+3; data values 4..
WAIT_REG_MEM 0x3c 7
    function 1[2:0] = 0 1 2 3 4 5 6; mem_space 1[5:4] = 0 1; operation 1[7:6] = 0 1 3; engine 1[8];
    cache_policy 1[26:25]; address 2+3; reference 4; mask 5; poll_interval 6[15:0]
COPY_DATA 0x40 6
    src_sel 1[3:0] = 0 1 2 4 5 6 9 10; dst_sel 1[11:8] = 0 2 4 5 6; src_cache_policy 1[14:13]; count_sel 1[16];
    wr_confirm 1[20]; dst_cache_policy 1[26:25]; engine 1[31:30]; src 2+3; dst 4+5
EVENT_WRITE 0x46 2 4
    event_type 1[5:0]; event_index 1[11:8]; sample_mode 1[30:29]; offload_enable 1[31]; address 2+3
RELEASE_MEM 0x49 8
    event_type 1[5:0]; wait_sync 1[7]; event_index 1[11:8] = 5 6; gcr_cntl 1[24:12]; cache_policy 1[26:25];
    pq_exe_status 1[28]; glk_inv 1[30]; pws 1[31]; dst_sel 2[17:16]; int_sel 2[26:24] = 0 1 2 3 4 5 6;
    data_sel 2[31:29] = 0 1 2 3 4; address 3+4; data 5+6; int_ctxid 7
DMA_DATA 0x50 7
    engine 1[0]; src_cache_policy 1[14:13]; dst_sel 1[21:20] = 0 2 3; dst_cache_policy 1[26:25];
    src_sel 1[30:29] = 0 2 3; cp_sync 1[31]; src 2+3; dst 4+5; byte_count 6[25:0]; src_space 6[26] = 0;
    dst_space 6[27] = 0; src_fixed 6[28]; dst_fixed 6[29]; raw_wait 6[30]; disable_write_confirm 6[31]
SET_SH_REG_INDEX 0x9b 3+1
    register 1[15:0]; vmid_shift 1[27:23]; index 1[31:28] = 0 1 2 3; values values 2..
# Mesa's ac_emit_cp_acquire_mem_pws: bits of PWS, a wait for the release with the same counter
ACQUIRE_MEM 0x58 8
    stage 1[13:11]; counter 1[15:14]; pws_enable_2 1[17]; pws_count 1[23:18]; pfp 1[31]; size_256b 2+3/40;
    base_256b 4+5/56; size_high 3[24:8]; poll_interval 6[15:0]; pws_enable 6[31]; gcr_cntl 7[18:0]
"""
_ROWS_CHANGED = parse_rows(_CHANGED)

GRAPHICS_ROWS: tuple[PacketRow, ...] = (
    *(row for row in ROWS if row.opcode not in {other.opcode for other in _ROWS_CHANGED}),
    *_ROWS_CHANGED,
    *ADDED,
)
