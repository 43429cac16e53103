#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"
#include "row.glsl"
#include "slot.glsl"

// LOGITS_ADJUST: mask, bias, penalties and min_tokens of a row's slot, in this order. counts i32[P][vocab]: a token's
// times in the output, above them a bit: in the prompt; end i32[E]; bias_id i32[B][biases], ascending, and bias_value
// f32[B][biases], or both 0; mask u32[M][vocab / 32 rounded up] and mask_row i32[L], or both 0. Grid: rows, vocab / 1024
// rounded up.
KERNARG(F32 logits; U32 row_slot; I32 position; U32 record; U32 counts; I32 end; U32 bias_id; F32 bias_value; U32 mask;
        I32 mask_row; F32RW adjusted; uint vocab; uint slots; uint count_rows; uint ends; uint bias_rows; uint biases;
        uint mask_rows;)

const uint NEVER = SIGN_BIT | INFINITY_BITS;

bool is_allowed(uint row, uint id) {
    if (!present(args.mask)) return true;
    int mask = args.mask_row.v[row];
    if (mask < 0) return true;
    return (row_of(U32, args.mask, mask, (args.vocab + 31u) >> 5).v[id >> 5] >> (id & 31u) & 1u) != 0u;
}

float biased(float x, Slot slot, uint id) {
    if (!present(args.bias_id) || (slot.flags & FLAG_BIAS) == 0u) return x;
    U32 ids = row_of(U32, args.bias_id, slot.bias_row, args.biases);
    uint first = 0u, end = min(slot.bias_count, args.biases), behind = end;
    while (first < end) {  // to the first that is not below
        uint middle = (first + end) >> 1;
        bool below = ids.v[middle] < id;
        first = below ? middle + 1u : first;
        end = below ? end : middle;
    }
    if (first == behind || ids.v[first] != id) return x;
    return x + row_of(F32, args.bias_value, slot.bias_row, args.biases).v[first];
}

float penalised(float x, Slot slot, uint id) {
    if ((slot.flags & FLAG_PENALTIES) == 0u) return x;
    uint count = row_of(U32, args.counts, slot.penalty_row, args.vocab).v[id], made = count & ~SIGN_BIT;
    if (count != 0u) x = x > 0.0 ? fdiv_(x, slot.repetition) : x * slot.repetition;
    if (made != 0u) x = (x - slot.frequency * float(made)) - slot.presence;
    return x;
}

bool is_end(Slot slot, uint id) {
    for (uint i = 0u; i < args.ends; i++) {
        if (args.end.v[i] == int(id)) return true;
    }
    for (uint i = 0u; i < min(slot.stop_count, 8u); i++) {
        if (slot.stop_ids[i] == int(id)) return true;
    }
    return false;
}

void main() {
    uint row = gl_WorkGroupID.x;
    Slot slot = slot_of(args.record, args.row_slot.v[row]);
    bool too_short = args.position.v[row] - slot.prompt_len < slot.min_tokens;
    F32 logits = row_of(F32, args.logits, row, args.vocab);
    F32RW adjusted = row_of(F32RW, args.adjusted, row, args.vocab);
    for (uint i = 0u; i < 8u; i++) {
        uint id = gl_WorkGroupID.y * 1024u + i * WORKGROUP + lane;
        if (id >= args.vocab) return;
        float x = is_allowed(row, id) ? logits.v[id] : f32(NEVER);
        x = penalised(biased(x, slot, id), slot, id);
        adjusted.v[id] = too_short && is_end(slot, id) ? f32(NEVER) : x;
    }
}
