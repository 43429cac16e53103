// Registers as a wave finds them. s[0:1] is where they go, with no kernarg block.
//
// out u32[groups][128]: s2 to s31 at 2, vcc at 32, m0 at 34, ttmp0 to ttmp15 at 48, v1 to v31 of lane 0 at 65
.include "zrt.inc"
zrt_kernel name=state, threads=32, vgprs=48, sgprs=32
    s_mov_b64 exec, 1
    v_mov_b32 v40, ttmp9
    v_lshlrev_b32 v40, 9, v40
.irp n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    v_mov_b32 v41, s\n
    global_store_b32 v40, v41, s[0:1] offset:4*\n
.endr
    v_mov_b32 v41, vcc_lo
    global_store_b32 v40, v41, s[0:1] offset:128
    v_mov_b32 v41, vcc_hi
    global_store_b32 v40, v41, s[0:1] offset:132
    v_mov_b32 v41, m0
    global_store_b32 v40, v41, s[0:1] offset:136
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    v_mov_b32 v41, ttmp\n
    global_store_b32 v40, v41, s[0:1] offset:192+4*\n
.endr
.irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    global_store_b32 v40, v\n, s[0:1] offset:256+4*\n
.endr
    s_endpgm
zrt_end
