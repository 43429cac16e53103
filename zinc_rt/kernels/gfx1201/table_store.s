// TABLE_STORE: the page-table entries that change in this step, table[entry[i]] = value[i]. A grid of one workgroup, and
// one lane an entry: entries are few, and often there are none.
//
// buffers: entry i32[E]; value i32[E]; table i32[]; counts i32[4]
.include "zrt.inc"
zrt_kernel name=table_store, buffers=4, constants=0, threads=32, vgprs=16, sgprs=24

    s_load_b256 s[4:11], s[0:1], 0x0                // entry, value, table, counts
    v_and_b32 v0, 0x3ff, v0
    s_wait_kmcnt 0x0
    s_load_b32 s12, s[10:11], 0xc                   // entries
    s_wait_kmcnt 0x0
.Lnext:
    v_cmp_gt_u32 vcc_lo, s12, v0
    s_wait_alu 0xfffd
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    v_lshlrev_b32 v1, 2, v0
    global_load_b32 v2, v1, s[4:5]
    global_load_b32 v3, v1, s[6:7]
    v_add_nc_u32 v0, 32, v0
    s_wait_loadcnt 0x1
    v_lshlrev_b32 v2, 2, v2
    s_wait_loadcnt 0x0
    global_store_b32 v2, v3, s[8:9]
    s_branch .Lnext
.Lend:
    s_endpgm
zrt_end
