#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// The (token, choice) pairs of a step sorted by expert, for matmul_wmma_experts: a stable counting sort. A workgroup does
// one expert, an invocation an equal share of the pairs. gfx1201/sort_experts.s explains the slots of tiles.
//
// grid: x experts
// buffers: ids i32 [T][choices]; routes: i32 [slots][4], (expert, first pair, number of pairs, 0), then pairs
//          i32 [T * choices], token * choices + choice; counts i32, the first one T
// constants: choices, slots, experts
KERNARG(U32 ids; U32RW routes; U32 counts; uint choices; uint slots; uint experts;)

const uint TILE = 32u;

shared uint lower_of[LANES], own_of[LANES];

void main() {
    uint expert = gl_WorkGroupID.x, pairs = args.counts.v[0] * args.choices;
    uint share = (pairs + LANES - 1u) / LANES, first = min(lane * share, pairs), last = min(first + share, pairs);
    uint lower = 0u, own = 0u;
    for (uint i = first; i < last; i++) {
        uint id = args.ids.v[i];
        lower += uint(id < expert);
        own += uint(id == expert);
    }
    lower_of[lane] = lower;
    own_of[lane] = own;
    barrier();
    uint begin = 0u, number = 0u, before = 0u;
    for (uint l = 0u; l < LANES; l++) {
        begin += lower_of[l];
        before += l < lane ? own_of[l] : 0u;
        number += own_of[l];
    }
    uint at = 4u * args.slots + begin + before;
    for (uint i = first; i < last; i++)
        if (args.ids.v[i] == expert) args.routes.v[at++] = i;
    uint slot = begin / TILE + expert + lane, done = lane * TILE;
    uint end = expert + 1u == args.experts ? args.slots : (begin + number) / TILE + expert + 1u;
    for (; slot < end; slot += LANES, done += LANES * TILE) {
        args.routes.v[4u * slot] = expert;
        args.routes.v[4u * slot + 1u] = begin + done;
        args.routes.v[4u * slot + 2u] = min(number - min(done, number), TILE);
        args.routes.v[4u * slot + 3u] = 0u;
    }
}
