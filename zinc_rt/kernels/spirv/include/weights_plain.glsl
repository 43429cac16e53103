// Weights that lie as in the file: f32, f16, bf16. Rows of other lengths than multiples of four go step by step.
#include "plain.glsl"
#include "steps.glsl"

#if defined(WEIGHT_F32)
const uint TYPE = PLAIN_F32;
#elif defined(WEIGHT_F16)
const uint TYPE = PLAIN_F16;
#else
const uint TYPE = PLAIN_BF16;
#endif
#define STEPS 4u

struct Row { uint64_t first; };  // its first element
Row row_at(uint64_t row) { return Row(row * args.k); }
uint whole_blocks(uint k) { return (k & 3u) == 0u ? k / (STEPS * STEP) : 0u; }

// Of an element that is a multiple of four
vec4 four_weights(uint64_t element) {
    if (TYPE == PLAIN_F32) return four_floats(uint64_t(args.w) + element * 4ul);
    uvec2 words = two_words(uint64_t(args.w) + element * 2ul);
    return vec4(plain_half(words.x, 0u, TYPE), plain_half(words.x, 1u, TYPE),
                plain_half(words.y, 0u, TYPE), plain_half(words.y, 1u, TYPE));
}

struct Block { vec4 steps[4]; };

Block load_block(Row row, uint block) {
    uint64_t first = row.first + block * (STEPS * STEP) + 4u * lane;
    return Block(vec4[4](four_weights(first), four_weights(first + STEP), four_weights(first + 2u * STEP),
                         four_weights(first + 3u * STEP)));
}

vec4 block_weights(Block block, uint step) { return block.steps[step]; }

vec4 step_weights(Row row, uint step) {
    uint first = step * STEP + 4u * lane;
    vec4 weights = vec4(0.0);
    [[unroll]] for (uint e = 0u; e < 4u; e++)
        if (first + e < args.k) weights[e] = plain_element(uint64_t(args.w), row.first + first + e, TYPE);
    return weights;
}
