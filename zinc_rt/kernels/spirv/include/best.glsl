// The best of many by falling value, ties to the lower index: a value as a signed integer key, and its index.
#ifndef BEST_GLSL
#define BEST_GLSL

struct Best {
    int key;
    uint index;
};

const Best NO_BEST = Best(-0x7fffffff - 1, 0xffffffffu);  // below every value

// A value's bits in the order of the values, -0 like +0; `nan` stands for a NaN.
int best_key(uint bits, int nan) {
    if ((bits & ~SIGN_BIT) > INFINITY_BITS) return nan;
    return bits == SIGN_BIT ? 0 : order_key(f32(bits));
}

bool is_better(Best a, Best b) { return a.key > b.key || (a.key == b.key && a.index < b.index); }
Best better(Best a, Best b) { if (is_better(a, b)) return a; return b; }

shared Best bests_[WORKGROUP];

// The best of the workgroup's, for every invocation. In uniform control flow.
Best best_of_workgroup(Best mine) {
    barrier();  // what an earlier call left has been read
    bests_[lane] = mine;
    for (uint other = WORKGROUP / 2u; other > 0u; other >>= 1) {
        barrier();
        if (lane < other) bests_[lane] = better(bests_[lane], bests_[lane + other]);
    }
    barrier();
    return bests_[0];
}

#endif
