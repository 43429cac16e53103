// The end of a projection, shared by matvec and matmul: a lane sum a result, then scale and bias.
#include "plain.glsl"

// y = sum * scale[of_scale] + bias[of_bias], each where it is there. flags: bits 1:0 type of scale, 3:2 of bias.
float scaled_and_biased(float y, uint of_scale, uint of_bias) {
    if (present(args.scale)) y = y * plain_element(uint64_t(args.scale), of_scale, args.flags & 3u);
    if (present(args.bias)) y = y + plain_element(uint64_t(args.bias), of_bias, args.flags >> 2 & 3u);
    return y;
}
