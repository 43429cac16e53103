#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "row.glsl"
#include "slot.glsl"

// STREAM_OUT: an entry (ir/ring_entry.py) of each row into the output ring, in order, except for rows whose slot has
// backpressure; the cursor counts entries ever written. Grid: one. One invocation writes: the rows are few.
KERNARG(U32 token; U32 row_slot; U32 position; U32 record; U32RW ring; U32RW cursor; U32 counts; uint capacity; uint slots;)

void main() {
    if (lane != 0u) return;
    uint rows = args.counts.v[2], cursor = args.cursor.v[0], at = cursor % args.capacity;
    for (uint row = 0u; row < rows; row++) {
        uint number = args.row_slot.v[row];
        Slot slot = slot_of(args.record, number);
        uint flags = slot.flags;
        if ((flags & FLAG_BACKPRESSURE) != 0u) continue;
        args.ring.v[4u * at] = slot.epoch << 10 | number;
        args.ring.v[4u * at + 1u] = args.position.v[row];
        args.ring.v[4u * at + 2u] = args.token.v[row];
        args.ring.v[4u * at + 3u] = (flags & 0xffu) | uint(slot.logprobs + 1 & 0xff) << 8 | row << 16;
        at = at + 1u == args.capacity ? 0u : at + 1u;
        cursor++;
    }
    args.cursor.v[0] = cursor;
}
