"""Bugs of public Triton kernels, re-made in few lines. The line that a check must name ends with the comment BUG.

Each function launches its kernel on a chip that is installed. Where the offset is negative, the kernel is compiled
without buffer instructions, as it is for tensors of 2 GiB: for negative offsets those return 0 without an access.
"""

import numpy as np
import triton
import triton.language as tl


# https://github.com/triton-lang/triton/issues/10336: a length that is right for one array, not for the other view
@triton.jit
def one_length_for_two(values, bins, out, n, STRIDE: tl.constexpr):
    i = tl.arange(0, 8)
    value = tl.load(values + i, mask=i < n, other=0)
    bin = tl.load(bins + i * STRIDE, mask=i < n, other=0)  # BUG
    tl.store(out + i, value + bin, mask=i < n)


def view_shorter_than_length():
    values, bins, out = np.arange(4), np.arange(5), np.zeros(4, np.int64)
    one_length_for_two[(1,)](values, bins[0::2], out, 4, STRIDE=2, num_warps=1)


# https://github.com/databricks/megablocks/pull/186: row * columns in 32 bits wraps to a negative offset
@triton.jit
def copy_rows(source, rows, out, columns, BLOCK: tl.constexpr):
    row = tl.load(rows + tl.program_id(0))
    i = tl.arange(0, BLOCK)
    value = tl.load(source + row * columns + i)  # BUG
    tl.store(out + tl.program_id(0) * BLOCK + i, value)


def offset_wraps():
    source, out = np.zeros(4096, np.float32), np.zeros(64, np.float32)
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_buffer_ops = False
        copy_rows[(1,)](source, np.array([524288], np.int32), out, 4096, BLOCK=64, num_warps=1)


# https://github.com/intel/intel-xpu-backend-for-triton/pull/7494: memory as scratch space, read in another order
@triton.jit
def reverse_through_memory(x, scratch, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(scratch + i, tl.load(x + i))
    tl.store(out + i, tl.load(scratch + BLOCK - 1 - i))  # BUG


def load_without_barrier():
    x, scratch, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32), np.zeros(256, np.float32)
    reverse_through_memory[(1,)](x, scratch, out, BLOCK=256)


# https://github.com/vllm-project/vllm/pull/40074: lanes behind the sequence's end look their page up all the same
@triton.jit
def gather_pages(cache, table, out, length, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(table + position // PAGE)  # BUG
    value = tl.load(cache + page * PAGE + position % PAGE, mask=position < length)
    tl.store(out + position, value, mask=position < length)


def page_of_masked_lanes():
    cache, table, out = np.zeros(64, np.float32), np.array([3, 1, 2], np.int32), np.zeros(48, np.float32)
    gather_pages[(1,)](cache, table, out, 48, PAGE=16, BLOCK=128)


# https://github.com/vllm-project/vllm/pull/30887: V is loaded without the mask of K
@triton.jit
def window(keys, values, table, out, first, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    position = tl.arange(0, BLOCK)
    page = tl.load(table + position // PAGE)
    index = page * PAGE + position % PAGE
    key = tl.load(keys + index, mask=position >= first, other=0.0)
    value = tl.load(values + index)  # BUG
    tl.store(out + position, tl.where(position >= first, key * value, 0.0))


def block_outside_of_window():
    keys, values, out = np.ones(32, np.float32), np.ones(32, np.float32), np.zeros(64, np.float32)
    table = np.array([-1, -1, 0, 1], np.int32)
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_buffer_ops = False
        window[(1,)](keys, values, table, out, 32, PAGE=16, BLOCK=64, num_warps=2)
