// One sum for each workgroup, the total, and a count of positive elements.
kernel void sums(global float *sums, global const float *x, volatile global int *count, global uint *shape) {
  local float part[64];
  uint i = get_local_id(0);
  part[i] = x[get_global_id(0)];
  if (x[get_global_id(0)] > 0) atomic_inc(count);
  for (uint step = get_local_size(0) / 2; step; step /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < step) part[i] += part[i + step];
  }
  if (i == 0) sums[get_group_id(0)] = sqrt(fabs(part[0]));
  if (get_global_id(0) == 0) {
    shape[0] = get_global_size(0);
    shape[1] = get_num_groups(0);
    shape[2] = get_work_dim();
    shape[3] = get_global_id(1) + get_num_groups(2);
  }
}
