// https://github.com/llvm/llvm-project/issues/207883 (cause: https://github.com/ROCm/rocm-libraries/pull/12266): one row of
// lanes stores a rotation that all rows load after a barrier, and the next round stores without a barrier before it
__kernel __attribute__((reqd_work_group_size(1024, 1, 1)))
void rotations(__global float *out, __global const float *x)
{
    __local float cosine[32];
    int row = get_local_id(0) / 32, column = get_local_id(0) % 32;
    float total = 0;
    for (int turn = 0; turn < 3; turn++) {
        if (row == 0)
            cosine[column] = x[32 * turn + column]; // BUG
        barrier(CLK_LOCAL_MEM_FENCE);
        total += cosine[column];
    }
    out[get_local_id(0)] = total;
}
