// The slot record, ir/slot_record.py: the fields that kernels read. A test holds them against it.
#ifndef SLOT_GLSL
#define SLOT_GLSL

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Slot {
    layout(offset = 4) uint epoch;
    layout(offset = 36) int prompt_len;
    layout(offset = 68) float temperature;
    layout(offset = 72) float top_k;
    layout(offset = 76) float top_p;
    layout(offset = 80) float min_p;
    layout(offset = 84) uvec2 seed;
    layout(offset = 92) uint choice;
    layout(offset = 96) float repetition;
    layout(offset = 100) float presence;
    layout(offset = 104) float frequency;
    layout(offset = 108) int penalty_row;
    layout(offset = 112) int bias_row;
    layout(offset = 116) uint bias_count;
    layout(offset = 120) int logprobs;
    layout(offset = 124) uint stop_count;
    layout(offset = 128) int stop_ids[8];
    layout(offset = 172) int min_tokens;
    layout(offset = 176) uint flags;
};

const uint SLOT_DWORDS = 64u;
const uint FLAG_PENALTIES = 2u, FLAG_BIAS = 4u, FLAG_BACKPRESSURE = 64u;  // SlotFlag

#define slot_of(record, slot) row_of(Slot, record, slot, SLOT_DWORDS)

#endif
