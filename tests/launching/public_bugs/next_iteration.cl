// https://github.com/iree-org/iree/pull/16551: no barrier between the reads of one iteration and the stores of the next
kernel void next_iteration(global float *out, global const float *x) {
  local float tile[64];
  int i = get_local_id(0);
  float sum = 0;
  for (int k = 0; k < 4; k++) {
    tile[i] = x[64 * k + i]; // BUG
    barrier(CLK_LOCAL_MEM_FENCE);
    sum += tile[(i + 37) & 63];
  }
  out[i] = sum;
}
