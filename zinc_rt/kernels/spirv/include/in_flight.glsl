// Loads in flight: a loop that waits for each of its loads takes memory's latency every time round.
#ifndef IN_FLIGHT_GLSL
#define IN_FLIGHT_GLSL

const uint IN_FLIGHT = 8u;  // are under way before the first of them is used

// The i-th of what an invocation looks at from `begin` on, with the others of its workgroup between: the last of
// `count` where there are no more.
uint strided(uint begin, uint i, uint count) { return min(begin + i * WORKGROUP, count - 1u); }

#endif
