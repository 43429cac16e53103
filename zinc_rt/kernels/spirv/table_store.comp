#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// TABLE_STORE: the page-table entries that change in this step, table[entry[i]] = value[i]. One workgroup, and one
// lane an entry: entries are few, and often there are none.
KERNARG(U32 entry; U32 value; U32RW table; U32 counts;)

const uint ENTRIES = 3u;  // ir.graph.SYMBOLS' index

void main() {
    uint entries = args.counts.v[ENTRIES];
    for (uint i = lane; i < entries; i += LANES) args.table.v[args.entry.v[i]] = args.value.v[i];
}
