"""Packets of the compute engine: opcode, size and fields, as sim.tables.layout reads them.

Source of every row without its own source: PAL (GPUOpen-Drivers/pal, c5e80007 of April 2025), opcodes from
gfx12_merged_pm4_it_opcodes.h, fields from gfx12_merged_f32_mec_pm4_packets.h, gfx11 values (after `|`) from
gfx9_plus_merged_f32_mec_pm4_packets.h. Field names are those used by the functions in sim/cp/execute.
"""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.sim.tables.layout import PacketRow, parse_rows

# VGT_EVENT_TYPE of gfx12_merged_enum.h: the events that shipped software sends to the compute engine
CS_PARTIAL_FLUSH = 0x07
CACHE_FLUSH_AND_INV_TS = 0x14
SAMPLE_PIPELINESTAT = 0x1E
BOTTOM_OF_PIPE_TS = 0x28
CS_DONE = 0x2F
_EVENTS = "7 0x14 0x17 0x18 0x19 0x1a 0x1b 0x1e 0x28 0x2f 0x35 0x37"

# event_index of RELEASE_MEM and EVENT_WRITE, by the event it belongs to (PAL: MEC_RELEASE_MEM_event_index_enum,
# MEC_EVENT_WRITE_event_index_enum; kernel soc15d.h EVENT_INDEX's comment)
END_OF_PIPE, SHADER_DONE = 5, 6
PARTIAL_FLUSH = 4
RELEASE_INDEX: Mapping[int, int] = {
    CACHE_FLUSH_AND_INV_TS: END_OF_PIPE,
    BOTTOM_OF_PIPE_TS: END_OF_PIPE,
    CS_DONE: SHADER_DONE,
}

EVERYTHING_256B = (1 << 40) - 1  # ACQUIRE_MEM's size with all bits set: no range

# ATOMIC_MEM's op codes: MEC_ATOMIC_MEM_atomic_enum
ATOMIC_QWORD, ATOMIC_NO_RETURN = 32, 64
_ATOMICS = (
    "0 7 8 15 16 17 18 19 20 21 22 23 24 25 26 27 32 39 40 47 48 49 50 51 52 53 54 55 56 57 "
    "71 72 79 80 81 82 83 84 85 86 87 88 89 91 103 104 111 112 113 114 115 116 117 118 119 120 121 123"
)

_FUNCTION = "0 1 2 3 4 5 6"

ROWS: tuple[PacketRow, ...] = parse_rows(
    f"""
NOP 0x10 1+1
    body values 1..
SET_BASE 0x11 4 gfx12
    base_index 1[3:0] = 6; address 2+3
DISPATCH_DIRECT 0x15 5
    dim_x 1; dim_y 2; dim_z 3; initiator 4
DISPATCH_INDIRECT 0x16 4
    address 1+2; initiator 3
ATOMIC_GDS 0x1d 11 gfx11
    atomic 1[7:0]; compare_swap 1[16]; complete 1[17]; read_preop 1[18]; read_control 1[20:19];
    auto_increment_bytes 2[5:0]; dmode 2[8]; base 3[15:0]; size 4[15:0]; offset_0 5[7:0]; offset_1 5[23:16];
    destination 6; source_0 7+8; source_1 9+10
ATOMIC_MEM 0x1e 9
    atomic 1[6:0] ~ {_ATOMICS}; command 1[11:8] = 0 1 2 3; cache_policy 1[26:25]; address 2+3; source 4+5;
    compare 6+7; loop_interval 8[12:0]
COND_EXEC 0x22 5
    address 1+2; cache_policy 3[26:25]; exec_count 4[13:0]
# Not in PAL's MEC lists: soc15d.h of the kernel
PRED_EXEC 0x23 2
    exec_count 1[13:0]; xcc_select 1[31:24]
WRITE_DATA 0x37 5+1
    dst_sel 1[11:8] = 0 2 5 6 | 0 2 3 5 6; same_address 1[16]; wr_confirm 1[20]; mode 1[21] @12;
    aid_id 1[24:23] @12; cache_policy 1[26:25]; address 2+3; data values 4..
WAIT_REG_MEM 0x3c 7
    function 1[2:0] = {_FUNCTION}; mem_space 1[5:4] = 0 1; operation 1[7:6] = 0 1 3; mes_intr_pipe 1[23:22];
    mes_action 1[24]; cache_policy 1[26:25]; address 2+3; reference 4; mask 5; poll_interval 6[15:0];
    optimize_ace_offload 6[31]
# PAL's gfx11 field has two bits, but its value for opening a window is 7: three, as on gfx12
PERF_COUNTER_WINDOW 0x3d 2
    operation 1[2:0] = 0 7
# Bits 30 and 31: IGT lib/amdgpu/amd_ip_blocks.c and Mesa (inherit the VMID), soc15d.h (privileged)
INDIRECT_BUFFER 0x3f 4
    address 1+2; size_dw 3[19:0]; chain 3[20]; offload_polling 3[21]; valid 3[23]; vmid 3[27:24];
    cache_policy 3[29:28]; inherit_vmid 3[30]; priv 3[31]
COND_INDIRECT_BUFFER 0x3f 14
    mode 1[1:0] = 1 2; function 1[10:8] = {_FUNCTION}; compare_address 2+3; mask 4+5; reference 6+7;
    address_1 8+9; size_1_dw 10[19:0]; cache_policy_1 10[29:28]; address_2 11+12; size_2_dw 13[19:0];
    cache_policy_2 13[29:28]
COPY_DATA 0x40 6
    src_sel 1[3:0] = 0 1 2 4 5 6 9 10 | 0 1 2 3 4 5 6 7 8 9 10; dst_sel 1[11:8] = 0 2 4 5 6 | 0 2 3 4 5 6;
    src_cache_policy 1[14:13]; count_sel 1[16]; wr_confirm 1[20]; mode 1[21] @12; aid_id 1[24:23] @12;
    dst_cache_policy 1[26:25]; pq_exe_status 1[29]; src 2+3; dst 4+5
COND_WRITE 0x45 9
    function 1[2:0] = {_FUNCTION}; poll_space 1[4]; write_space 1[9:8] = 0 1 2; wr_confirm 1[20];
    poll_address 2+3; reference 4; mask 5; write_address 6+7; data 8
EVENT_WRITE 0x46 2 4
    event_type 1[5:0] ~ {_EVENTS}; event_index 1[11:8] = 0 2 4 | 0 2 4 8 9 10 11; sample_mode 1[30:29];
    offload_enable 1[31]; address 2+3
RELEASE_MEM 0x49 8
    event_type 1[5:0] ~ {_EVENTS}; wait_sync 1[7]; event_index 1[11:8] = 5 6; gcr_cntl 1[24:12];
    cache_policy 1[26:25]; pq_exe_status 1[28]; glk_inv 1[30]; dst_sel 2[17:16]; mes_intr_pipe 2[21:20];
    mes_action_id 2[23:22]; int_sel 2[26:24] = 0 1 2 3 4 5 6; data_sel 2[31:29] = 0 1 2 3 4 | 0 1 2 3 4 5 7;
    address 3+4; data 5+6; int_ctxid 7
# cp_sync: soc15d.h of the kernel (PACKET3_DMA_DATA_CP_SYNC) and Mesa; works on a native gfx1201 compute queue
DMA_DATA 0x50 7
    src_cache_policy 1[14:13]; dst_sel 1[21:20] = 0 2 3 | 0 1 2 3; dst_cache_policy 1[26:25];
    src_sel 1[30:29] = 0 2 3 | 0 1 2 3; cp_sync 1[31]; src 2+3; dst 4+5; byte_count 6[25:0]; src_space 6[26] = 0;
    dst_space 6[27] = 0; src_fixed 6[28]; dst_fixed 6[29]; raw_wait 6[30]; disable_write_confirm 6[31]
PERFMON_CONTROL 0x54 3
    counter 1[2:0]; enable 1[15]; unit_mask 1[23:16]; event 2[13:0]
ACQUIRE_MEM 0x58 8
    size_256b 2+3/40; base_256b 4+5/56; poll_interval 6[15:0]; gcr_cntl 7[18:0]
REWIND 0x59 2
    offload_enable 1[24]; valid 1[31]
INDIRECT_BUFFER_PASID 0x5c 5
    address 1+2; size_dw 3[19:0]; chain 3[20]; offload_polling 3[21]; valid 3[23]; cache_policy 3[29:28];
    pasid 4[15:0]
PRIME_UTCL2 0x5d 5
    cache_permissions 1[2:0]; prime_mode 1[3]; address 2+3; requested_pages 4[13:0]
# The address's two low bits are `index`
LOAD_SH_REG_INDEX 0x63 5
    index 1[1:0] = 0 2; address_dw 1[31:2]; address_hi 2; register 3[15:0]; data_format 3[31];
    num_dwords 4[13:0]
SET_CONFIG_REG 0x68 3+1
    register 1[15:0]; vmid_shift 1[27:23]; index 1[31:28] = 0 1; values values 2..
SET_SH_REG 0x76 3+1
    register 1[15:0]; vmid_shift 1[27:23]; index 1[31:28] = 0 1; values values 2..
SET_QUEUE_REG 0x78 3+1
    register 1[7:0]; defer_exec 1[15]; queue 1[25:16]; values values 2..
SET_UCONFIG_REG 0x79 3+1
    register 1[15:0]; values values 2..
WAIT_REG_MEM64 0x93 9
    function 1[2:0] = {_FUNCTION}; mem_space 1[5:4] = 0 1; operation 1[7:6] = 0 1 3; mes_intr_pipe 1[23:22];
    mes_action 1[24]; cache_policy 1[26:25]; address 2+3; reference 4+5; mask 6+7; poll_interval 8[15:0];
    optimize_ace_offload 8[31]
HDP_FLUSH 0x95 2
    dummy 1
INVALIDATE_TLBS 0x98 2
    invalidate_sel 1[2:0] = 0 1; mmhub_invalidate_sel 1[4:3] = 0 1 2; pasid 1[20:5]; mmhub_flush_type 1[27:25];
    gfx_flush_type 1[31:29]
DMA_DATA_FILL_MULTI 0x9a 7
    memlog_clear 1[10]; dst_sel 1[21:20] = 3; dst_cache_policy 1[26:25]; src_sel 1[30:29] = 2; byte_stride 2;
    dma_count 3; dst 4+5; byte_count 6[25:0]
SET_SH_REG_INDEX 0x9b 3+1
    register 1[15:0]; vmid_shift 1[27:23]; index 1[31:28] = 0 1 3; values values 2..
DISPATCH_TASK_STATE_INIT 0xa9 3
    control_address 1+2
DISPATCH_TASKMESH_DIRECT_ACE 0xaa 6
    dim_x 1; dim_y 2; dim_z 3; initiator 4; ring_entry_register 5[15:0]
DISPATCH_TASKMESH_INDIRECT_MULTI_ACE 0xad 11
    data_address 1+2; ring_entry_register 3[15:0]; thread_trace_marker 4[0]; count_indirect 4[1];
    draw_index 4[2]; dims_enable 4[3]; dispatch_index_register 4[31:16]; dims_register 5[15:0]; count 6;
    count_address 7+8; stride 9; initiator 10
TIMESTAMP 0xb2 6
    enable_bottom 1[0]; enable_top 1[1]; clock_sel 1[2]; bottom_address 2+3; top_address 4+5
EXECUTE_INDIRECT_V2 0xb4 13 gfx12
    count_indirect 1[0]; userdata_dw_count 1[5:1]; command_index 1[6]; num_spill_registers 1[9:8];
    init_copy_count 1[12:10]; update_copy_count 1[18:16]; operation 1[21:19] = 2 5;
    userdata_scatter_mode 1[25:23] = 0; thread_trace 1[31]; count_address 2+3/48; max_count 4; stride 5;
    data_address 6+7/48; userdata_offset 8[31:16]; spill_table_address 9+10/48; spill_table_stride 11[31:16];
    spill_register_0 12[15:0]; spill_register_1 12[31:16]
SET_SH_REG_PAIRS 0xba 3+2 gfx12
    writes pairs 1..
SET_SH_REG_PAIRS_PACKED 0xbc 5+3
    writes_count 1[15:0]; writes packed 2..
SET_SH_REG_PAIRS_PACKED_N 0xbd 5+3
    writes_count 1[15:0]; writes packed 2..
SET_UCONFIG_REG_PAIRS 0xbe 3+2 gfx12
    writes pairs 1..
# Mesa src/amd/packets/pm4_it_opcodes_gfx12.h (numbers), IGT amd_ip_blocks.c and Mesa amdgpu_cs.cpp (use)
PROTECTED_FENCE_SIGNAL 0xd0 2
    dummy 1
FENCE_WAIT_MULTI 0xd1 6+4
    control 1; fences fences 2..
CLEANER_SHADER 0xd2 2 gfx12
"""
)
"""CLEANER_SHADER's body dword is reserved. COND_INDIRECT_BUFFER is told from INDIRECT_BUFFER by its size."""

ONE_DWORD_NOP = 0xFFFF10  # header >> 8: NOP with count 0x3FFF has one dword, by special rule (PAL, IGT, kfdtest)
