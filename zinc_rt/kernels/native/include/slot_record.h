// The slot record, ir/slot_record.py: the dwords in which fields begin. A test holds them against it.
#pragma once
#include "vec.h"

enum {
    SLOT_EPOCH = 1,
    SLOT_PROMPT_LEN = 9,
    SLOT_TEMPERATURE = 17,
    SLOT_TOP_K = 18,
    SLOT_TOP_P = 19,
    SLOT_MIN_P = 20,
    SLOT_SEED = 21,
    SLOT_CHOICE = 23,
    SLOT_REPETITION = 24,
    SLOT_PRESENCE = 25,
    SLOT_FREQUENCY = 26,
    SLOT_PENALTY_ROW = 27,
    SLOT_BIAS_ROW = 28,
    SLOT_BIAS_COUNT = 29,
    SLOT_LOGPROBS = 30,
    SLOT_STOP_COUNT = 31,
    SLOT_STOP_IDS = 32,
    SLOT_MIN_TOKENS = 43,
    SLOT_FLAGS = 44,
    SLOT_DWORDS = 64,
};
enum { SLOT_FLAG_PENALTIES = 2, SLOT_FLAG_BIAS = 4, SLOT_FLAG_BACKPRESSURE = 64 };

INLINE float slot_float(const int32_t *record, int dword) {
    float value;
    memcpy(&value, record + dword, 4);
    return value;
}
