// Elements of a cache of keys or values, in blocks of ggml: docs/canonical-1.md, "Cached keys and values". KV is the number
// of their type in ir.dtypes.CACHE_TYPES. A block of q8_0 has 34 bytes: a half d, then 32 int8, so that rows are aligned to
// 16 bits only.
#ifndef KV_GLSL
#define KV_GLSL

#ifndef KV
#define KV 0
#endif
#define KV_F32 0
#define KV_F16 1
#define KV_Q8_0 2

#if KV == KV_F32
#define kv_bytes(count) (4u * (count))
#define kv_row_of(type, buffer, row, count) row_of(type, buffer, row, count)
#else
#include "half.glsl"
#define kv_row_of(type, buffer, row, count) type(uint64_t(buffer) + uint64_t(row) * kv_bytes(count))

const uint KV_BLOCK = 34u;

uint64_t kv_bytes(uint count) { return KV == KV_F16 ? uint64_t(2u * count) : uint64_t(count / 32u * KV_BLOCK); }

// The word at an address whose two lowest bits may be set, and their number.
uint word_at(uint64_t at) { return U32(at & ~3ul).v[0]; }
uint byte_in_word(uint64_t at) { return uint(at) & 3u; }

float half_at(uint64_t at) { return half_of(word_at(at), byte_in_word(at) >> 1); }

// An element of the row at `row`
float kv_at(uint64_t row, uint dim) {
#if KV == KV_F16
    return half_at(row + 2u * dim);
#else
    uint64_t block = row + uint64_t(dim / 32u * KV_BLOCK), at = block + 2u + (dim & 31u);
    return float(bitfieldExtract(int(word_at(at)), int(8u * byte_in_word(at)), 8)) * half_at(block);
#endif
}

// Four from a multiple of four on; of f16 the row is a multiple of four too
vec4 kv_four(uint64_t row, uint dim) {
#if KV == KV_F16
    uvec2 words = U32x2(row + 2u * dim).v[0];
    return vec4(half_of(words.x, 0u), half_of(words.x, 1u), half_of(words.y, 0u), half_of(words.y, 1u));
#else
    uint64_t block = row + uint64_t(dim / 32u * KV_BLOCK), at = block + 2u + (dim & 31u);
    uint word = word_at(at);
    if (byte_in_word(at) != 0u) word = word >> 16 | word_at(at + 2u) << 16;
    float d = half_at(block);
    int four = int(word);
    return vec4(float(bitfieldExtract(four, 0, 8)) * d, float(bitfieldExtract(four, 8, 8)) * d,
                float(bitfieldExtract(four, 16, 8)) * d, float(bitfieldExtract(four, 24, 8)) * d);
#endif
}

#ifdef KV_STORED  // most elements that kv_store takes
#include "rounding.glsl"

float kv_element(uint i);  // that it stores

#if KV == KV_Q8_0
shared uint block_scales[KV_STORED / 32];
shared float block_factors[KV_STORED / 32];

void kv_scale_blocks(uint count) {
    for (uint block = lane; block < count / 32u; block += LANES) {
        uint largest = 0u;
        for (uint e = 0u; e < 32u; e++) largest = max(largest, bits_of(kv_element(32u * block + e)) & ~SIGN_BIT);
        bool finite = largest < INFINITY_BITS, used = finite && largest >= SMALLEST_AMAX;
        block_factors[block] = used ? fdiv_(127.0, f32(largest)) : 0.0;
        block_scales[block] = used ? half_bits(fdiv_(f32(largest), 127.0)) : finite ? 0u : 0x7e00u;
    }
    barrier();
}

uint kv_quant(uint block, uint e) {
    float factor = block_factors[block];
    return factor == 0.0 ? 0u : uint(int(frint_(kv_element(32u * block + e) * factor))) & 0xffu;
}

uint kv_half(uint i) {
    uint block = i / (KV_BLOCK / 2u), e = 2u * (i % (KV_BLOCK / 2u));
    return e == 0u ? block_scales[block] : kv_quant(block, e - 2u) | kv_quant(block, e - 1u) << 8;
}
#else
uint kv_half(uint i) { return float_to_half(kv_element(i)); }
#endif

// The first `count` elements to `to`, by the whole workgroup. A word that another row has a half of is changed by adding.
void kv_store(uint64_t to, uint count) {
#if KV == KV_Q8_0
    kv_scale_blocks(count);
#endif
    uint halves = uint(kv_bytes(count)) / 2u, before = byte_in_word(to) >> 1;
    for (uint w = lane; 2u * w < halves + before; w += LANES) {
        uint low = 2u * w - before, high = low + 1u;  // low is above all halves where it is the other row's
        bool has_low = low < halves, has_high = high < halves;
        uint word = (has_low ? kv_half(low) : 0u) | (has_high ? kv_half(high) << 16 : 0u);
        U32RW at = U32RW((to & ~3ul) + uint64_t(4u * w));
        if (has_low && has_high) {
            at.v[0] = word;
        } else {
            uint mine = has_low ? 0xffffu : 0xffff0000u;
            atomicAdd(at.v[0], word - (atomicAdd(at.v[0], 0u) & mine));
        }
    }
}
#endif
#endif
#endif
