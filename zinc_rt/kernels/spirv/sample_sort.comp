#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "in_flight.glsl"
#include "sample.glsl"

// SAMPLE, first: a row's tokens sorted by falling logit, ties to the lower id, NaN last. pairs u32[L][places][2], key
// and id; spare likewise. Grid: rows.
//
// A radix sort from the lowest of eight hexadecimal digits up. An invocation owns a run of neighbouring pairs and a
// counter of its own for each digit; the counters lie digit by digit, within that in the order of the invocations, so
// their running sums are where each invocation's first pair of each digit goes, and the sort is stable.
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer Pairs { uvec2 v[]; };
KERNARG(U32 logits; SamplingRows sampling; Pairs pairs; Pairs spare; uint vocab; uint places; uint row_bytes;)

const uint DIGITS = 16u;

shared uint counters[DIGITS * WORKGROUP];
shared uint totals[WORKGROUP];  // of each invocation's share of the counters, DIGITS neighbours

uint counter_of(uint key, uint digit) { return (key >> (4u * digit) & (DIGITS - 1u)) * WORKGROUP + lane; }

// Every counter becomes the sum of those before it.
void sum_counters() {
    uint share = lane * DIGITS, total = 0u;
    for (uint i = 0u; i < DIGITS; i++) total += counters[share + i];
    totals[lane] = total;
    barrier();
    uint before = 0u;
    for (uint i = 0u; i < lane; i++) before += totals[i];
    for (uint i = 0u; i < DIGITS; i++) {
        uint count = counters[share + i];
        counters[share + i] = before;
        before += count;
    }
    barrier();
}

// What invocations stored, to all of the workgroup.
void show_pairs() {
    memoryBarrierBuffer();
    barrier();
}

void main() {
    uint row = gl_WorkGroupID.x;
    if (is_greedy(args.sampling.v[row])) return;  // nobody reads the order
    U32 logits = row_of(U32, args.logits, row, args.vocab);
    Pairs from = row_of(Pairs, args.pairs, row, args.row_bytes >> 2);
    Pairs to = row_of(Pairs, args.spare, row, args.row_bytes >> 2);
    uint run = (args.vocab + WORKGROUP - 1u) / WORKGROUP;
    uint first = min(lane * run, args.vocab), end = min(first + run, args.vocab);
    for (uint i = first; i < end; i += IN_FLIGHT) {
        uint logit[IN_FLIGHT];
        [[unroll]] for (uint j = 0u; j < IN_FLIGHT; j++) logit[j] = logits.v[min(i + j, end - 1u)];
        [[unroll]] for (uint j = 0u; j < IN_FLIGHT; j++) {
            if (i + j < end) from.v[i + j] = uvec2(sample_key(logit[j]), i + j);
        }
    }
    show_pairs();
    for (uint digit = 0u; digit < 8u; digit++) {  // an even number: the last pass ends in `pairs`
        for (uint i = 0u; i < DIGITS; i++) counters[i * WORKGROUP + lane] = 0u;
        for (uint i = first; i < end; i += IN_FLIGHT) {
            uint key[IN_FLIGHT];
            [[unroll]] for (uint j = 0u; j < IN_FLIGHT; j++) key[j] = from.v[min(i + j, end - 1u)].x;
            [[unroll]] for (uint j = 0u; j < IN_FLIGHT; j++) {
                if (i + j < end) counters[counter_of(key[j], digit)]++;
            }
        }
        barrier();
        sum_counters();
        for (uint i = first; i < end; i += IN_FLIGHT) {
            uvec2 pair[IN_FLIGHT];
            [[unroll]] for (uint j = 0u; j < IN_FLIGHT; j++) pair[j] = from.v[min(i + j, end - 1u)];
            [[unroll]] for (uint j = 0u; j < IN_FLIGHT; j++) {
                if (i + j < end) to.v[counters[counter_of(pair[j].x, digit)]++] = pair[j];
            }
        }
        show_pairs();
        Pairs sorted = to;
        to = from;
        from = sorted;
    }
}
