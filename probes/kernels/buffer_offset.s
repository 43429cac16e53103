// Loads a dword of a buffer whose VGPR offset and second offset add up to a valid one modulo 2^32 only.
//
// buffers: in u32[4], out u32[2]: in[1] with an immediate, with an SGPR as the second offset
.include "zrt.inc"
zrt_kernel name=buffer_offset, buffers=2, threads=32, vgprs=8, sgprs=24
    s_load_b128 s[4:7], s[0:1], 0x0
    s_mov_b64 exec, 1
    v_mov_b32 v0, -16
    v_mov_b32 v4, 0
    s_mov_b32 s10, 16                   // NUM_RECORDS in bytes
    s_mov_b32 s11, lit(0x31027000)      // raw, 32 bits: the flags that MLIR's amdgpu dialect sets on RDNA
    s_mov_b32 s12, 20
    s_wait_kmcnt 0x0
    s_mov_b32 s8, s4
    s_and_b32 s9, s5, lit(0xffff)
    buffer_load_b32 v2, v0, s[8:11], null offen offset:20
    buffer_load_b32 v3, v0, s[8:11], s12 offen
    s_wait_loadcnt 0x0
    global_store_b64 v4, v[2:3], s[6:7]
    s_endpgm
zrt_end
