// What the kernels of SAMPLE share. A logit as a sort key: the smaller unsigned key is the better logit. -0 is +0, and
// a NaN, 0xffffffff, is behind -infinity. The logit comes back out of its key (-0 as +0, which no difference and no exp
// tells apart).
#ifndef SAMPLE_GLSL
#define SAMPLE_GLSL

struct Sampling {
    float temperature;
    float top_k;
    float top_p;
    float min_p;
};
BUFFER(SamplingRows, readonly, Sampling, 4);

// Its own inverse: what is negative stays, the positive turn round.
uint sample_flip(uint bits) { return (bits >> 31) != 0u ? bits : bits ^ ~SIGN_BIT; }

uint sample_key(uint bits) {
    if ((bits & ~SIGN_BIT) > INFINITY_BITS) return 0xffffffffu;
    return sample_flip(bits == SIGN_BIT ? 0u : bits);
}

float sample_logit(uint key) { return f32(sample_flip(key)); }

// No token is drawn: argmax's stays.
bool is_greedy(Sampling how) { return how.temperature <= 0.0; }

// How many of the order are candidates: top_k, 1 at least, where that is above 0, and never more than vocab.
uint sample_candidates(Sampling how, uint vocab) {
    if (!(how.top_k > 0.0) || how.top_k >= float(vocab)) return vocab;
    return max(1u, uint(how.top_k));
}

#endif
