// A row of a buffer of dwords: an address of its own, so that no index within it goes beyond 2^31.
#ifndef ROW_GLSL
#define ROW_GLSL

#define row_of(type, buffer, row, dwords) type(uint64_t(buffer) + uint64_t(row) * (4ul * uint64_t(dwords)))

#endif
