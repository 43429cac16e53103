// Attention of one head of one query over the paged cache; docs/canonical-1.md, "Attention". f32 throughout, but for
// the caches, whose types are kv.glsl's.
//
// A workgroup of 128 takes one chunk of 256 keys after the other. Scores: an invocation computes the whole dot of a
// key, of two in a chunk; nothing is exchanged for it. Values: an invocation sums one dim over one group of 32 keys
// after the other; where a value is narrower than 128 dims, halves, quarters or eighths of the workgroup share the
// chunk's eight groups. What the chunks so far have come to lies in shared memory, where an invocation reads only
// what it wrote.
//
// The source defines WIDEST, the most dims of a value (128: of a key too), and what a key is: `find_key`, and `key_dim` or
// for caches that are not f32 `key_at`, `key_four`.
#ifndef ATTENTION_GLSL
#define ATTENTION_GLSL
#include "kv.glsl"

const uint CHUNK = 256u, GROUPS = 8u, GROUP = CHUNK / GROUPS;
const uint DIMS = WORKGROUP;  // of a value that are summed at a time

uint64_t find_key(uint row);  // cache row `row` is the invocation's key from now on; where its value lies
#if KV == KV_F32
uint64_t key_dim(uint dim);   // where a dim of that key lies
#define key_at(dim) F32(key_dim(dim)).v[0]
#define key_four(dim) F32x4(key_dim(dim)).v[0]
#else
float key_at(uint dim);       // a dim of that key
vec4 key_four(uint dim);      // four from a multiple of four on
#endif

uint64_t query;  // where the workgroup's lies
bool in_fours;   // four dims from a multiple of four on lie together, 16-byte aligned, in query and key

shared float weights[CHUNK];       // scores first, then p
shared uint64_t values[CHUNK];     // their addresses, of visible keys only
shared float maxima[WORKGROUP];
shared float group_maxima[GROUPS];
shared float group_weights[GROUPS];
shared float group_values[GROUPS * DIMS];
shared float attended[WIDEST];

float sum_of_groups(float a, float b, float c, float d, float e, float f, float g, float h) {
    return ((a + b) + (c + d)) + ((e + f) + (g + h));
}

// Of four neighbouring dims; those behind the last are 0.
vec4 products(uint dim, uint width) {
    if (in_fours) return F32x4(query + 4u * dim).v[0] * key_four(dim);
    vec4 some = vec4(0.0);
    some.x = F32(query + 4u * dim).v[0] * key_at(dim);
    if (dim + 1u < width) some.y = F32(query + 4u * dim + 4u).v[0] * key_at(dim + 1u);
    if (dim + 2u < width) some.z = F32(query + 4u * dim + 8u).v[0] * key_at(dim + 2u);
    if (dim + 3u < width) some.w = F32(query + 4u * dim + 12u).v[0] * key_at(dim + 3u);
    return some;
}

// What lane dim / 4 of canonical-1's dot gives to its tree.
float lane_sum(uint dim, uint width) {
    if (dim >= width) return 0.0;
    vec4 sums = products(dim, width);
#if WIDEST > 128
    for (uint next = dim + 128u; next < width; next += 128u) sums += products(next, width);
#endif
    return (sums.x + sums.y) + (sums.z + sums.w);
}

// The tree over eight lanes.
float eight_lanes(uint dim, uint width) {
    return ((lane_sum(dim, width) + lane_sum(dim + 4u, width))
            + (lane_sum(dim + 8u, width) + lane_sum(dim + 12u, width)))
        + ((lane_sum(dim + 16u, width) + lane_sum(dim + 20u, width))
            + (lane_sum(dim + 24u, width) + lane_sum(dim + 28u, width)));
}

// dot(query, key)
float score(uint width) {
    float low = 0.0, high = 0.0;  // of lanes 0..15 and 16..31
    for (uint dim = 0u; dim < min(width, 128u); dim += 32u) {
        float sum = eight_lanes(dim, width);
        if (dim < 64u) low = dim == 0u ? sum : low + sum;
        else high = dim == 64u ? sum : high + sum;
    }
    return no_minus_zero(low + high);
}

// The largest of all invocations' x, to each of them.
float maximum_of_workgroup(float x) {
    const uint part = WORKGROUP / GROUPS;
    maxima[lane] = x;
    barrier();
    if (lane < GROUPS) {
        float largest = maxima[lane * part];
        for (uint i = 1u; i < part; i++) largest = fmax_(largest, maxima[lane * part + i]);
        group_maxima[lane] = largest;
    }
    barrier();
    float largest = group_maxima[0];
    for (uint i = 1u; i < GROUPS; i++) largest = fmax_(largest, group_maxima[i]);
    return largest;
}

#if KV == KV_F32
float value_dim(int key, uint dim) { return F32(values[key]).v[dim]; }
#else
float value_dim(int key, uint dim) { return kv_at(values[key], dim); }
#endif

// Sum of p * v in one dim over keys [low, high] of the chunk, one after the other, with eight loads on their way.
float sum_of_values(uint dim, int low, int high) {
    float sum = 0.0;
    int key = low;
    for (; key + 7 <= high; key += 8) {
        float a = value_dim(key, dim), b = value_dim(key + 1, dim), c = value_dim(key + 2, dim);
        float d = value_dim(key + 3, dim), e = value_dim(key + 4, dim), f = value_dim(key + 5, dim);
        float g = value_dim(key + 6, dim), h = value_dim(key + 7, dim);
        sum = sum + weights[key] * a;
        sum = sum + weights[key + 1] * b;
        sum = sum + weights[key + 2] * c;
        sum = sum + weights[key + 3] * d;
        sum = sum + weights[key + 4] * e;
        sum = sum + weights[key + 5] * f;
        sum = sum + weights[key + 6] * g;
        sum = sum + weights[key + 7] * h;
    }
    for (; key <= high; key++) sum = sum + weights[key] * value_dim(key, dim);
    return no_minus_zero(sum);
}

// group_values: each group's sums in dims [first, first + DIMS).
void sum_values(uint first, uint width, int low, int high) {
    uint lanes = max(DIMS / GROUPS, 1u << (findMSB(min(width, DIMS) - 1u) + 1));
    uint dim = lane & (lanes - 1u), share = GROUPS * lanes / DIMS;
    for (uint group = lane / lanes * share; group < (lane / lanes + 1u) * share; group++) {
        int begin = max(low, int(group * GROUP)), end = min(high, int(group * GROUP + GROUP - 1u));
        group_values[group * DIMS + dim] = first + dim < width ? sum_of_values(first + dim, begin, end) : 0.0;
    }
}

// y = attention of the query over the keys at positions [first, last] of a slot; widths of a key and of a value. With
// a sink, a chunk before all others has m = sink, l = 1 and o = 0.
void attend(
    uint slot, int first, int last, uint key_width, uint value_width, float scale, float cap, bool has_sink, float sink,
    F32RW y) {
    float m = sink, l = 1.0;
    bool begun = has_sink;
    if (begun) {
        for (uint dim = lane; dim < value_width; dim += DIMS) attended[dim] = 0.0;
    }
    for (int chunk = first & ~int(CHUNK - 1u); chunk <= last; chunk += int(CHUNK)) {
        int low = max(first - chunk, 0), high = min(last - chunk, int(CHUNK) - 1);
        float largest = f32(0xff800000u);  // -infinity, which changes no maximum
        for (int key = int(lane); key <= high; key += WORKGROUP) {
            if (key < low) continue;
            values[key] = find_key(cache_row(slot, uint(chunk + key)));
            float s = score(key_width) * scale;
            if (cap != 0.0) s = ftanh_(fdiv_(s, cap)) * cap;
            weights[key] = s;
            largest = fmax_(largest, s);
        }
        float m_chunk = maximum_of_workgroup(largest);
        for (int key = int(lane); key <= high; key += WORKGROUP) {
            if (key >= low) weights[key] = fexp_(weights[key] - m_chunk);
        }
        barrier();
        if (lane < GROUPS) {
            float sum = 0.0;
            int end = min(high, int(lane * GROUP + GROUP - 1u));
            for (int key = max(low, int(lane * GROUP)); key <= end; key++) sum += weights[key];
            group_weights[lane] = sum;
        }
        float m_merged = begun ? fmax_(m, m_chunk) : m_chunk;
        float a = fexp_(m - m_merged), b = fexp_(m_chunk - m_merged);
        for (uint block = 0u; block < value_width; block += DIMS) {
            sum_values(block, value_width, low, high);
            barrier();
            if (block + lane < value_width) {
                float o = sum_of_groups(
                    group_values[lane], group_values[DIMS + lane], group_values[2u * DIMS + lane],
                    group_values[3u * DIMS + lane], group_values[4u * DIMS + lane], group_values[5u * DIMS + lane],
                    group_values[6u * DIMS + lane], group_values[7u * DIMS + lane]);
                attended[block + lane] = begun ? attended[block + lane] * a + o * b : o;
            }
            float l_chunk = sum_of_groups(
                group_weights[0], group_weights[1], group_weights[2], group_weights[3], group_weights[4],
                group_weights[5], group_weights[6], group_weights[7]);
            if (block == 0u) l = begun ? l * a + l_chunk * b : l_chunk;
            barrier();
        }
        m = m_merged;
        begun = true;
    }
    for (uint dim = lane; dim < value_width; dim += DIMS) y.v[dim] = begun ? fdiv_(attended[dim], l) : 0.0;
}

#endif
