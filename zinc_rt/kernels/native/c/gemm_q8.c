// canonical-1-q8, many tokens: a panel of 16 rows is unpacked once, a lane of a vector is a row.
//
// The definition's 32 accumulators need no memory: blocks are visited accumulator by accumulator (b = l, l + 32, ..),
// so that one running sum is enough, and a finished one goes on a binary counter of partial sums, which is the tree
// of neighbours: docs/canonical-1.md, canonical-1-q8. Accumulators behind the last block are +0.
#include "blocks.h"
#include "projection.h"
#include "transpose.h"

#define LEVELS 6    // of the counter: 32 accumulators
#define UNPACKED 128  // blocks of 32 at once: 72 KiB. Four accumulators' at least, so K is 32768 at most
#define UNPACKED_K 4  // blocks of 256: one accumulator's of the same K
#define K_MAXIMUM 32768

typedef struct {
    f32x16 level[LEVELS];
} counter;

INLINE void push(counter *c, uint32_t number, f32x16 v) {
    uint32_t level = 0;
    for (; number >> level & 1; level++) v = c->level[level] + v;
    c->level[level] = v;
}

// Accumulators that some block reaches, rounded up to a power of two.
INLINE uint32_t accumulators(uint32_t blocks) {
    uint32_t n = 1;
    while (n < blocks && n < 32) n *= 2;
    return n;
}

// How many tokens of those that are left share the registers: the last may be there twice.
INLINE uint32_t together(uint32_t left) { return left >= NT ? NT : left > NT / 4 ? NT / 2 : NT / 4; }

INLINE void pointers(const job *j, uint32_t row, const uint8_t *rows[PANEL]) {
    for (uint32_t i = 0; i < PANEL; i++) rows[i] = j->w + (size_t)(row + i < j->last ? row + i : j->last - 1) * j->row_bytes;
}

// The next panel's bytes at the same place, into the second-level cache: rows are streams that no prefetcher follows.
INLINE void fetch_panel(const job *j, const uint8_t *const rows[PANEL], size_t at, uint32_t bytes) {
    size_t ahead = PANEL * j->row_bytes + at;
    for (uint32_t i = 0; i < PANEL; i++)
        for (uint32_t line = 0; line < bytes; line += 64) __builtin_prefetch(rows[i] + ahead + line, 0, 2);
}

static void put_panel(const job *j, uint32_t row, uint32_t t, f32x16 v) {
    uint32_t n = j->last - row < PANEL ? j->last - row : PANEL;
    if (j->scale) v = v * splat_exact(j->scale[0]);
    if (n == PANEL) {
        if (j->bias) v = v + load16(j->bias + row);
        store16(j->y[t] + row, v);
    } else {
        if (j->bias) v = v + load_some(j->bias + row, n);
        store_some(j->y[t] + row, v, n);
    }
}

// ---- blocks of 32

typedef struct {
    i8x64 w[8];  // dword g of each row
    f32x16 d;
} panel32;

INLINE f32x16 halves_of(const uint8_t *const rows[PANEL], size_t offset) {
    uint16_t h[16];
#pragma unroll
    for (int i = 0; i < 16; i++) memcpy(&h[i], rows[i] + offset, 2);
    typedef uint16_t u16x16 __attribute__((vector_size(32)));
    u16x16 v = {h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11], h[12], h[13], h[14], h[15]};
    return halves16(&v);
}

#define BIASED ((i8x64){0} + (int8_t)BIAS)

// Blocks b and, where there are `two`, b + 1.
INLINE void unpack_q8_0(const uint8_t *const rows[PANEL], uint32_t b, int two, panel32 *to, panel32 *next) {
    size_t at = 34 * (size_t)b;
    i32x16 v[16] = {0};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        memcpy(&v[i], rows[i] + at + 2, 32);
        if (two) memcpy((uint8_t *)&v[i] + 32, rows[i] + at + 36, 32);
    }
    transpose16(v);
#pragma unroll
    for (int g = 0; g < 8; g++) {
        to->w[g] = (i8x64)v[g] ^ BIASED;
        next->w[g] = (i8x64)v[8 + g] ^ BIASED;
    }
    to->d = halves_of(rows, at);
    if (two) next->d = halves_of(rows, at + 34);
}

INLINE i8x64 nibbles_minus_8(i32x16 v) { return ((i8x64)(v & 0x0f0f0f0f) - 8) ^ BIASED; }

INLINE void unpack_q4_0(const uint8_t *const rows[PANEL], uint32_t b, panel32 *to) {
    size_t at = 18 * (size_t)b;
    i32x16 v[4];
    transpose4(rows, at + 2, v);
#pragma unroll
    for (int g = 0; g < 4; g++) {
        to->w[g] = nibbles_minus_8(v[g]);
        to->w[4 + g] = nibbles_minus_8(v[g] >> 4);
    }
    to->d = halves_of(rows, at);
}

// Accumulators l .. l + count - 1 of a panel, a multiple of four; `each` blocks to one, in a row.
typedef struct {
    const panel32 *blocks;
    uint32_t l, count, each, of;  // `of` blocks in a row of the weight
} lanes32;

// Their sum for nt tokens from t, by the counter's tree. A few at a time in registers, then in the first-level cache.
INLINE void sum32(const job *j, const lanes32 *p, uint32_t t, counter *sums, const uint32_t nt) {
    const uint8_t *x[NT];
    f32x16 level[LEVELS][NT];
#pragma unroll
    for (uint32_t i = 0; i < nt; i++) x[i] = j->x[t + i < j->n ? t + i : j->n - 1];
    size_t k = j->k;
    uint32_t top = 0;
    for (uint32_t first = 0; first < p->count; first += 4) {
        f32x16 run[4][NT] = {0};
#pragma unroll
        for (uint32_t which = 0; which < 4; which++) {
            const panel32 *from = p->blocks + (first + which) * p->each;
            for (uint32_t b = p->l + first + which; b < p->of; b += 32, from++) {
                i32x16 s[NT];
#pragma unroll
                for (uint32_t i = 0; i < nt; i++) {
                    int32_t minus = BIAS ? *(const int32_t *)(x[i] + k + k / 8 + 4 * b) : 0;
                    s[i] = (i32x16){minus, minus, minus, minus, minus, minus, minus, minus,
                                    minus, minus, minus, minus, minus, minus, minus, minus};
                }
#pragma unroll
                for (int g = 0; g < 8; g++) {
                    i8x64 w = from->w[g];
#pragma unroll
                    for (uint32_t i = 0; i < nt; i++) s[i] = lanes4(s[i], w, (const int8_t *)x[i] + 32 * b + 4 * g);
                }
#pragma unroll
                for (uint32_t i = 0; i < nt; i++) {
                    f32x16 d = from->d * splat_exact(*(const float *)(x[i] + k + 4 * b));
                    run[which][i] = run[which][i] + __builtin_convertvector(s[i], f32x16) * d;
                }
            }
        }
        for (uint32_t i = 0; i < nt; i++) run[0][i] = (run[0][i] + run[1][i]) + (run[2][i] + run[3][i]);
        for (top = 0; first / 4 >> top & 1; top++)
            for (uint32_t i = 0; i < nt; i++) run[0][i] = level[top][i] + run[0][i];
        for (uint32_t i = 0; i < nt; i++) level[top][i] = run[0][i];
    }
    for (uint32_t i = 0; i < nt; i++) push(&sums[t + i], p->l / p->count, level[top][i]);
}

INLINE void panel_by32(uint32_t type, const job *j, uint32_t row) {
    const uint8_t *rows[PANEL];
    pointers(j, row, rows);
    counter sums[TILE + NT];
    panel32 p[UNPACKED];
    uint32_t blocks = j->k / 32, lanes = accumulators(blocks) < 4 ? 4 : accumulators(blocks), each = (blocks + 31) / 32, count = lanes;
    while (count * each > UNPACKED) count /= 2;
    for (uint32_t l = 0; l < lanes; l += count) {
        for (uint32_t first = 0; first < 32 * each; first += 32)
            for (uint32_t i = 0; i < count && first + l + i < blocks; i += 2) {
                uint32_t b = first + l + i;
                int two = b + 1 < blocks;
                panel32 *to = p + i * each + first / 32;
                fetch_panel(j, rows, (size_t)b * block_bytes(type), 64);
                if (type == type_q8_0) unpack_q8_0(rows, b, two, to, to + each);
                else {
                    unpack_q4_0(rows, b, to);
                    if (two) unpack_q4_0(rows, b + 1, to + each);
                }
            }
        lanes32 some = {p, l, count, each, blocks};
        for (uint32_t t = 0, nt; t < j->n; t += nt) {
            nt = together(j->n - t);
            if (nt == NT) sum32(j, &some, t, sums, NT);
            else if (nt == NT / 2) sum32(j, &some, t, sums, NT / 2);
            else sum32(j, &some, t, sums, NT / 4);
        }
    }
    for (uint32_t t = 0; t < j->n; t++) put_panel(j, row, t, sums[t].level[__builtin_ctz(lanes / count)]);
}

// ---- blocks of 256

typedef struct {
    i8x64 w[64];         // dword g of each row, 0..63
    i32x16 scale[16];    // of each sub-block: 8 of 32 elements, or 16 of 16
    i16x32 minimum[8];   // pairs of minimums, or of q6_k's scales
    f32x16 d, dmin;
} panel256;

INLINE i32x16 byte_of(i32x16 v, int i) { return v >> 8 * i & 255; }

// q4_k's and q5_k's header of 16 bytes.
INLINE void unpack_scales(const uint8_t *const rows[PANEL], size_t at, panel256 *to) {
    i32x16 v[4];
    transpose4(rows, at, v);
    typedef uint16_t u16x16 __attribute__((vector_size(32)));
    u16x16 d = __builtin_convertvector(v[0], u16x16), dmin = __builtin_convertvector(v[0] >> 16, u16x16);
    to->d = halves16(&d), to->dmin = halves16(&dmin);
    i32x16 s[2] = {v[1] & 0x3f3f3f3f, (v[3] & 0x0f0f0f0f) | (v[1] >> 2 & 0x30303030)};
    i32x16 m[2] = {v[2] & 0x3f3f3f3f, (v[3] >> 4 & 0x0f0f0f0f) | (v[2] >> 2 & 0x30303030)};
#pragma unroll
    for (int i = 0; i < 8; i++) to->scale[i] = byte_of(s[i / 4], i % 4);
#pragma unroll
    for (int i = 0; i < 4; i++) to->minimum[i] = (i16x32)(byte_of(m[i / 2], 2 * (i % 2)) | byte_of(m[i / 2], 2 * (i % 2) + 1) << 16);
}

INLINE void unpack_q4_k(const uint8_t *const rows[PANEL], uint32_t b, panel256 *to) {
    size_t at = 144 * (size_t)b;
    unpack_scales(rows, at, to);
    for (int h = 0; h < 2; h++) {
        i32x16 v[16];
        transpose64(rows, at + 16 + 64 * h, v);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int g = 32 * h + 16 * (i / 8) + i % 8;  // low nibbles are a sub-block, high ones the next
            to->w[g] = (i8x64)(v[i] & 0x0f0f0f0f);
            to->w[g + 8] = (i8x64)(v[i] >> 4 & 0x0f0f0f0f);
        }
    }
}

INLINE void unpack_q5_k(const uint8_t *const rows[PANEL], uint32_t b, panel256 *to) {
    size_t at = 176 * (size_t)b;
    unpack_scales(rows, at, to);
    i32x16 high[8], v[16];
    transpose4(rows, at + 16, high);
    transpose4(rows, at + 32, high + 4);
    for (int h = 0; h < 2; h++) {
        transpose64(rows, at + 48 + 64 * h, v);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int g = 32 * h + 16 * (i / 8) + i % 8, bit = 4 * h + 2 * (i / 8);
            to->w[g] = (i8x64)((v[i] & 0x0f0f0f0f) | (high[i % 8] >> bit & 0x01010101) << 4);
            to->w[g + 8] = (i8x64)((v[i] >> 4 & 0x0f0f0f0f) | (high[i % 8] >> (bit + 1) & 0x01010101) << 4);
        }
    }
}

INLINE void unpack_q6_k(const uint8_t *const rows[PANEL], uint32_t b, panel256 *to) {
    size_t at = 210 * (size_t)b;
    i32x16 v[16], high[16];
    transpose4(rows, at + 192, v);
#pragma unroll
    for (int i = 0; i < 16; i++) to->scale[i] = v[i / 4] << 8 * (3 - i % 4) >> 24;
#pragma unroll
    for (int i = 0; i < 8; i++) to->minimum[i] = (i16x32)((to->scale[2 * i] & 0xffff) | to->scale[2 * i + 1] << 16);
    transpose64(rows, at + 128, high);
    for (int h = 0; h < 2; h++) {
        transpose64(rows, at + 64 * h, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            i32x16 top = high[8 * h + i];
            i8x64 *w = to->w + 32 * h + i;
            w[0] = (i8x64)((v[i] & 0x0f0f0f0f) | (top & 0x03030303) << 4);
            w[8] = (i8x64)((v[8 + i] & 0x0f0f0f0f) | (top >> 2 & 0x03030303) << 4);
            w[16] = (i8x64)((v[i] >> 4 & 0x0f0f0f0f) | (top >> 4 & 0x03030303) << 4);
            w[24] = (i8x64)((v[8 + i] >> 4 & 0x0f0f0f0f) | (top >> 6 & 0x03030303) << 4);
        }
    }
    to->d = halves_of(rows, at + 208);
}

INLINE void lane256(uint32_t type, const job *j, const panel256 *p, uint32_t n, uint32_t l, uint32_t t, counter *sums,
                    counter *mins, const uint32_t nt) {
    const int subs = type == type_q6_k ? 16 : 8, dwords = 64 / subs;
    const uint8_t *x[NT];
    f32x16 run[NT] = {0}, less[NT] = {0};
    for (uint32_t i = 0; i < nt; i++) x[i] = j->x[t + i < j->n ? t + i : j->n - 1];
    size_t k = j->k, sums_at = k + k / 64 + (type == type_q6_k ? k / 16 : 0), of_block = type == type_q6_k ? 32 : 16;
    for (uint32_t c = 0, b = l; c < n; c++, b += 32) {
        i32x16 total[NT] = {0}, m[NT] = {0};
        for (int sub = 0; sub < subs; sub++) {
            i32x16 s[NT] = {0};
#pragma unroll
            for (int g = 0; g < dwords; g++) {
                i8x64 w = p[c].w[sub * dwords + g];
#pragma unroll
                for (uint32_t i = 0; i < nt; i++) s[i] = lanes4_small(s[i], w, (const int8_t *)x[i] + 256 * b + 4 * (sub * dwords + g));
            }
#pragma unroll
            for (uint32_t i = 0; i < nt; i++) total[i] = total[i] + s[i] * p[c].scale[sub];
        }
#pragma unroll
        for (int g = 0; g < subs / 2; g++)
#pragma unroll
            for (uint32_t i = 0; i < nt; i++) m[i] = lanes2(m[i], p[c].minimum[g], (const int16_t *)(x[i] + sums_at + of_block * b) + 2 * g);
#pragma unroll
        for (uint32_t i = 0; i < nt; i++) {
            f32x16 dx = splat_exact(*(const float *)(x[i] + k + 4 * b));
            i32x16 sum = type == type_q6_k ? total[i] - (m[i] << 5) : total[i];  // q6_k: weights were 32 too large
            run[i] = run[i] + __builtin_convertvector(sum, f32x16) * (p[c].d * dx);
            if (type != type_q6_k) less[i] = less[i] + __builtin_convertvector(m[i], f32x16) * (p[c].dmin * dx);
        }
    }
    for (uint32_t i = 0; i < nt; i++) {
        push(&sums[t + i], l, run[i]);
        if (type != type_q6_k) push(&mins[t + i], l, less[i]);
    }
}

INLINE void panel_by256(uint32_t type, const job *j, uint32_t row) {
    const uint8_t *rows[PANEL];
    pointers(j, row, rows);
    counter sums[TILE + NT], mins[TILE + NT];
    panel256 p[UNPACKED_K];
    uint32_t blocks = j->k / 256, lanes = accumulators(blocks), top = (uint32_t)__builtin_ctz(lanes);
    for (uint32_t l = 0; l < lanes; l++) {
        uint32_t n = 0;
        for (uint32_t b = l; b < blocks; b += 32, n++) {
            fetch_panel(j, rows, (size_t)b * block_bytes(type), block_bytes(type));
            if (type == type_q4_k) unpack_q4_k(rows, b, &p[n]);
            else if (type == type_q5_k) unpack_q5_k(rows, b, &p[n]);
            else unpack_q6_k(rows, b, &p[n]);
        }
        for (uint32_t t = 0, nt; t < j->n; t += nt) {
            nt = together(j->n - t);
            if (nt == NT) lane256(type, j, p, n, l, t, sums, mins, NT);
            else if (nt == NT / 2) lane256(type, j, p, n, l, t, sums, mins, NT / 2);
            else lane256(type, j, p, n, l, t, sums, mins, NT / 4);
        }
    }
    for (uint32_t t = 0; t < j->n; t++) put_panel(j, row, t, type == type_q6_k ? sums[t].level[top] : sums[t].level[top] - mins[t].level[top]);
}

#define X(name, block, tokens) \
    static void panel_##name(const job *j, uint32_t row) { panel_by##block(type_##name, j, row); }
Q8_TYPES(X)
#undef X

typedef struct {
    uint32_t type, tokens;
    void (*panel)(const job *, uint32_t row);
} by_panels;
static const by_panels PANELS[] = {
#define X(name, block, tokens) {type_##name, tokens, panel_##name},
    Q8_TYPES(X)
#undef X
};

void project_rows_q8(const job *j) {
    for (uint32_t i = 0; i < sizeof PANELS / sizeof *PANELS; i++) {
        const by_panels *p = &PANELS[i];
        if (p->type != j->type || j->n < p->tokens || j->k > K_MAXIMUM) continue;
        for (uint32_t row = j->first; row < j->last; row += PANEL) p->panel(j, row);
        return;
    }
    rows_q8(j);
}
