// What memory gives to a loop that does nothing but read, and what the walker costs on a task that does nothing.
// bandwidth.py compiles it with the flags of kernels/native and calls it.
#include <stddef.h>
#include <stdint.h>

typedef uint64_t lanes __attribute__((vector_size(64)));

#define EXPORT __attribute__((visibility("default")))
#define AHEAD 4096  // bytes, as the kernels prefetch

// `size_bytes` is a multiple of 512, `data` of 64. The sum keeps the reads alive.
EXPORT uint64_t read_all(const char *data, size_t size_bytes) {
    lanes sums[8] = {0};
    for (size_t at = 0; at < size_bytes; at += sizeof sums) {
        for (int i = 0; i < 8; i++) {
            const char *line = data + at + i * sizeof(lanes);
            __builtin_prefetch(line + AHEAD);
            sums[i] += *(const lanes *)line;
        }
    }
    uint64_t total = 0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) total += sums[i][j];
    return total;
}

// Who ran the kernel below: one thread's stack, and how often another's was seen.
typedef struct {
    uint64_t stack;
    uint32_t others;
} runners;

// A kernel (task.h) that notes who runs it and does nothing else.
EXPORT int32_t nothing(const void *arguments, const uint32_t grid[3], uint32_t first, uint32_t last) {
    runners *seen = (runners *)arguments;
    uint64_t stack = (uint64_t)(uintptr_t)__builtin_frame_address(0) >> 16;
    if (!seen->stack) seen->stack = stack;
    else if (seen->stack != stack) seen->others++;
    return 0;
}
