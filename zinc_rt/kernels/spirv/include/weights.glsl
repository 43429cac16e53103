// A weight's elements as float32, four a lane and step; rows/repack.py has the layout. A step is 128 elements, lane l
// has 4 l to 4 l + 3 of it. A row is blocks of STEPS steps, then single steps; elements past its end are 0.
//
// Behind Args, which has `w`, `k` and PLANES, and with WEIGHT_<type> defined, every type gives:
//
//   Row row_at(uint64_t row)                    where a row lies
//   uint whole_blocks(uint k)                   of a row
//   Block load_block(Row row, uint block)       what this lane has of a block
//   vec4 block_weights(Block block, uint step)  of a step of the block, a constant after unrolling
//   vec4 step_weights(Row row, uint step)       of a step behind the whole blocks, counted from the row's begin
//
// Loops over them are do-while: a driver that runs lanes in step under a mask, as lavapipe does, runs the body of a
// for loop once more with nobody in it.
#ifndef WEIGHTS_GLSL
#define WEIGHTS_GLSL

#if defined(WEIGHT_Q8_0)
#include "weights_q8_0.glsl"
#elif defined(WEIGHT_Q4_0)
#include "weights_q4_0.glsl"
#elif defined(WEIGHT_MXFP4)
#include "weights_mxfp4.glsl"
#elif defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
#include "weights_q4_k.glsl"
#elif defined(WEIGHT_Q6_K)
#include "weights_q6_k.glsl"
#else
#include "weights_plain.glsl"
#endif
#endif
