// All sixteen user data registers as a wave finds them: s[0:1] is where they go, with no kernarg block.
.include "zrt.inc"
zrt_kernel name=user_data, threads=32, vgprs=24, sgprs=16
    s_mov_b64 exec, 1
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    v_mov_b32 v[\n+4], s\n
.endr
    v_mov_b32 v1, 0
    global_store_b128 v1, v[4:7], s[0:1]
    global_store_b128 v1, v[8:11], s[0:1] offset:16
    global_store_b128 v1, v[12:15], s[0:1] offset:32
    global_store_b128 v1, v[16:19], s[0:1] offset:48
    s_endpgm
zrt_end
