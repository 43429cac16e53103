// The gated delta rule over tokens whose gates and units are made: delta_net.inc.
//
// buffers: conv_out f32[T][row]; unit f32[T][2 * k_heads][d], q then k; gates f32[T][H][2]; state f32[rows][H][d][d];
//          new state, the same shape; sequence i32[T]; source i32[S] or 0; target i32[S] or 0 (rows of the states;
//          0: the sequence's number); y f32[T][H * d]; counts i32[3]
// constants: d, a multiple of 4, at most 128; row; k_heads; H; v_heads of a k head where grouped, 0 where tiled;
//            shrink f32
.set DELTA_STEP, 0
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
.include "delta_net.inc"
zrt_kernel name=delta_net, buffers=10, constants=6, threads=128, vgprs=40, sgprs=88
    delta_net
zrt_end
