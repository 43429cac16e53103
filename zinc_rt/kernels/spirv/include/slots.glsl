// The slot record, ir/slot_record.py: the dwords in which fields begin.
#ifndef SLOTS_GLSL
#define SLOTS_GLSL

const uint SLOT_DWORDS = 64u;
const uint SLOT_PENALTY_ROW = 27u;
const uint SLOT_FLAGS = 44u;
const uint SLOT_FLAG_PENALTIES = 2u;

#endif
