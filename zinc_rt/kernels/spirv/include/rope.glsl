// ROPE of one pair, by an element of cos and sin, which the source has among its arguments.
#ifndef ROPE_GLSL
#define ROPE_GLSL

vec2 turned(float x, float y, uint angle) {
    float c = args.cos.v[angle], s = args.sin.v[angle];
    return vec2(x * c - y * s, x * s + y * c);
}

#endif
