// The gated delta rule from the convolution's output on, in one dispatch: delta_net.inc.
//
// buffers: conv_out f32[T][row]; beta f32[T][H]; alpha f32[T][H]; state f32[rows][H][d][d]; new state, the same shape;
//          sequence i32[T]; source i32[S] or 0; target i32[S] or 0 (rows of the states; 0: the sequence's number);
//          y f32[T][H * d]; counts i32[3]; dt_bias f32[H]; a f32[H]
// constants: d, a multiple of 4, at most 128; row; k_heads; H; v_heads of a k head where grouped, 0 where tiled;
//            shrink f32; eps f32
.set DELTA_STEP, 1
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
.include "delta_net.inc"
zrt_kernel name=delta_step, buffers=12, constants=7, threads=128, vgprs=40, sgprs=96
    delta_net
zrt_end
