"""Repack weights for the kernels: quantised blocks are split into aligned planes in canonical lane order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from zinc_rt.ir.dtypes import count_row_bytes, find_block
from zinc_rt.kernels.weight import Weight

STEP = 128
PAIR = 2 * STEP
GROUP = 8 * STEP
ALIGNMENT = 256
PLANES = 3  # at most
PLAIN_DTYPES = ("f32", "f16", "bf16")  # types as in the file; the index is their code in kernels
CHUNK_ELEMENTS = 1 << 20  # repacked at a time, to fit in a cache


@dataclass(frozen=True, slots=True)
class Plane:
    offset_bytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    planes: tuple[Plane, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PackedType:
    """One quantised type. `planes`: for each plane the bytes of a group and of a pair in the tail; with None the
    tail is stored as a whole group. `split` separates a file's blocks into planes, `join` is its inverse."""

    planes: tuple[tuple[int, int | None], ...]
    split: Callable[[np.ndarray], tuple[np.ndarray, ...]]  # blocks [rows, B, bytes] -> planes [rows, row_bytes]
    join: Callable[[tuple[np.ndarray, ...], int], np.ndarray]  # planes, k -> raw [rows, B, bytes]


def make_layout(dtype: str, rows: int, k: int) -> Layout:
    """Return the locations of the planes of `rows` rows of `k` elements. Raise ValueError for rows of partial
    blocks."""
    in_file = count_row_bytes(dtype, k)
    if dtype not in FORMATS:
        return Layout((Plane(0, in_file),), rows * in_file)
    groups, pairs = k // GROUP, -(-(k % GROUP) // PAIR)
    planes, end = [], 0
    for group_bytes, pair_bytes in FORMATS[dtype].planes:
        tail = (pairs > 0) * group_bytes if pair_bytes is None else pairs * pair_bytes
        planes.append(Plane(-(-end // ALIGNMENT) * ALIGNMENT, groups * group_bytes + tail))
        end = planes[-1].offset_bytes + rows * planes[-1].row_bytes
    return Layout(tuple(planes), end)


def list_plane_constants(planes: tuple[Plane, ...]) -> tuple[int, ...]:
    """Return (offset, bytes per row) of each plane after the first; zeros for absent planes."""
    missing = PLANES - 1 - len(planes)
    return (*(value for plane in planes for value in (plane.offset_bytes, plane.row_bytes)), *(0, 0) * missing)


def count_group_bytes(dtype: str) -> tuple[int, ...]:
    """Return the bytes of a group in each plane; empty for a type that keeps the file's layout."""
    return tuple(group for group, _ in FORMATS[dtype].planes) if dtype in FORMATS else ()


def pack(dtype: str, raw: np.ndarray) -> np.ndarray:
    """Convert uint8 [rows, bytes per row in the file] to uint8 [layout.size_bytes]. Return a view if nothing
    changes."""
    if dtype not in FORMATS:
        return raw.reshape(-1)
    elements, size_bytes = find_block(dtype)
    rows, k = len(raw), raw.shape[1] // size_bytes * elements
    location = make_layout(dtype, rows, k)
    packed = np.zeros(location.size_bytes, np.uint8)
    for part in _split_chunks(rows, k):
        planes = FORMATS[dtype].split(raw[part].reshape(-1, k // elements, size_bytes))
        for plane, data in zip(_make_views(location, packed, rows), planes, strict=True):
            plane[part] = data
    return packed


def unpack(dtype: str, packed: np.ndarray, rows: int, k: int) -> np.ndarray:
    """Invert `pack`: return uint8 [rows, bytes per row in the file]."""
    in_file = count_row_bytes(dtype, k)
    if dtype not in FORMATS:
        return packed.reshape(rows, in_file)
    raw = np.empty((rows, in_file), np.uint8)
    views = _make_views(make_layout(dtype, rows, k), packed, rows)
    for part in _split_chunks(rows, k):
        blocks = FORMATS[dtype].join(tuple(view[part] for view in views), k)
        raw[part] = blocks.reshape(len(blocks), in_file)
    return raw


def count_packed_bytes(weight: Weight) -> int:
    """Return the size of `pack_weight`'s result."""
    if weight.dtype not in FORMATS:
        return weight.nbytes
    return make_layout(weight.dtype, prod(weight.shape[:-1]), weight.shape[-1]).size_bytes


def pack_weight(weight: Weight) -> np.ndarray:
    """Pack a weight, uint8, 1-D. All leading dimensions are rows. The result is a copy unless the weight is
    contiguous and keeps its layout."""
    raw = np.ascontiguousarray(weight.raw)
    return pack(
        weight.dtype,
        raw.view(np.uint8).reshape(prod(weight.shape[:-1]), count_row_bytes(weight.dtype, weight.shape[-1])),
    )


def _split_chunks(rows: int, k: int) -> Iterator[slice]:
    item = max(1, CHUNK_ELEMENTS // max(k, 1))
    return (slice(first, first + item) for first in range(0, rows, item))


def _make_views(layout: Layout, packed: np.ndarray, rows: int) -> list[np.ndarray]:
    return [
        packed[p.offset_bytes : p.offset_bytes + rows * p.row_bytes].reshape(rows, p.row_bytes)
        for p in layout.planes
    ]


# --- quants: [rows, k] bytes <-> plane 0


def _pad_values(values: np.ndarray, unit: int) -> np.ndarray:
    """Pad [rows, n, ...] with zeros to a multiple of `unit` in n."""
    short = -values.shape[1] % unit
    return np.pad(values, [(0, 0), (0, short), *[(0, 0)] * (values.ndim - 2)]) if short else values


def _to_words(values: np.ndarray) -> np.ndarray:
    """Convert uint8 [rows, n] to u32 [rows, n / 4]."""
    return np.ascontiguousarray(values).view(np.uint32)


def _to_bytes(words: np.ndarray) -> np.ndarray:
    """Convert any array [rows, ...] to its bytes [rows, n]."""
    return np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)


def _interleave(words: np.ndarray, k: int, *, per_load: int, of_tail: int) -> np.ndarray:
    """Reorder u32 [rows, n][lane]: runs of `per_load` times 32 lanes to [lane][run], followed by the groups
    `of_tail`."""
    rows = len(words)
    whole = k // GROUP * (words.shape[1] // -(-k // PAIR)) * 4  # rows of lanes in whole groups
    head = words[:, :whole].reshape(rows, -1, per_load, 32).swapaxes(2, 3)
    tail = words[:, whole:].reshape(rows, -1, of_tail, 32).swapaxes(2, 3)
    return np.concatenate([head.reshape(rows, -1), tail.reshape(rows, -1)], axis=1)


def _deinterleave(words: np.ndarray, k: int, *, per_load: int, of_tail: int, per_group: int) -> np.ndarray:
    rows, whole = len(words), k // GROUP * per_group * 32
    head = words[:, :whole].reshape(rows, -1, 32, per_load).swapaxes(2, 3)
    tail = words[:, whole:].reshape(rows, -1, 32, of_tail).swapaxes(2, 3)
    return np.concatenate([head.reshape(rows, -1), tail.reshape(rows, -1)], axis=1)


def _pack_bytes(q: np.ndarray) -> np.ndarray:
    words = _to_words(_pad_values(q, PAIR)).reshape(len(q), -1, 32)
    return _to_bytes(_interleave(words, q.shape[1], per_load=4, of_tail=2))


def _unpack_bytes(plane: np.ndarray, k: int) -> np.ndarray:
    return _to_bytes(_deinterleave(_to_words(plane), k, per_load=4, of_tail=2, per_group=8))[:, :k]


def _pack_nibbles(q: np.ndarray) -> np.ndarray:
    pairs = _pad_values(q, PAIR).reshape(len(q), -1, 2, STEP)
    words = _to_words(pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(q), -1, 32)
    return _to_bytes(_interleave(words, q.shape[1], per_load=4, of_tail=1))


def _unpack_nibbles(plane: np.ndarray, k: int) -> np.ndarray:
    pairs = _to_bytes(_deinterleave(_to_words(plane), k, per_load=4, of_tail=1, per_group=4)).reshape(
        len(plane), -1, STEP
    )
    return np.stack([pairs & 15, pairs >> 4], axis=2).reshape(len(plane), -1)[:, :k]


# --- scales of 32 elements each: [rows, k / 32] <-> 32 entries a group


def _pack_scales(entries: np.ndarray) -> np.ndarray:
    """Convert u16 [rows, k / 32] to bytes [rows, groups, 64]."""
    groups = _pad_values(entries, 32).reshape(len(entries), -1, 8, 4).swapaxes(2, 3)
    return np.ascontiguousarray(groups).view(np.uint8).reshape(len(entries), -1, 64)


def _unpack_scales(plane: np.ndarray, k: int) -> np.ndarray:
    """Convert bytes [rows, groups, 64] to u16 [rows, k / 32]."""
    groups = np.ascontiguousarray(plane).view(np.uint16).reshape(len(plane), -1, 4, 8).swapaxes(2, 3)
    return groups.reshape(len(plane), -1)[:, : k // 32]


def _split_by_group(values: np.ndarray, per_group: int) -> np.ndarray:
    """Convert bytes [rows, n, size] to [rows, groups, per_group * size]."""
    padded = _pad_values(values, per_group)
    return padded.reshape(len(values), -1, per_group * values.shape[2])


# --- the formats


def _split_q8_0(block: np.ndarray) -> tuple[np.ndarray, ...]:
    quants = block[..., 2:].reshape(len(block), -1) ^ 0x80
    return _pack_bytes(quants), _pack_scales(_read_halves(block[..., :2])).reshape(len(block), -1)


def _join_q8_0(planes: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    quants = (_unpack_bytes(planes[0], k) ^ 0x80).reshape(-1, k // 32, 32)
    return np.concatenate([_write_halves(_unpack_scales(planes[1], k)), quants], axis=2)


def _split_q4_0(block: np.ndarray) -> tuple[np.ndarray, ...]:
    quants = np.concatenate([block[..., 2:] & 15, block[..., 2:] >> 4], axis=2).reshape(len(block), -1)
    return _pack_nibbles(quants), _pack_scales(_read_halves(block[..., :2])).reshape(len(block), -1)


def _join_q4_0(planes: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    quants = _unpack_nibbles(planes[0], k).reshape(-1, k // 32, 32)
    return np.concatenate(
        [_write_halves(_unpack_scales(planes[1], k)), quants[..., :16] | quants[..., 16:] << 4], axis=2
    )


_POWERS = np.maximum(np.arange(256) - 1, 0).astype(np.uint16) << np.uint16(7)  # 2^(e - 128) as bf16 of byte e
_POWERS[:2] = 0x20, 0x40  # denormals


def _split_mxfp4(block: np.ndarray) -> tuple[np.ndarray, ...]:
    quants = np.concatenate([block[..., 1:] & 15, block[..., 1:] >> 4], axis=2).reshape(len(block), -1)
    return _pack_nibbles(quants), _pack_scales(_POWERS[block[..., 0]]).reshape(len(block), -1)


def _join_mxfp4(planes: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    quants = _unpack_nibbles(planes[0], k).reshape(-1, k // 32, 32)
    exponents = np.searchsorted(_POWERS, _unpack_scales(planes[1], k)).astype(np.uint8)
    return np.concatenate([exponents[..., None], quants[..., :16] | quants[..., 16:] << 4], axis=2)


def _split_k_scales(block: np.ndarray) -> np.ndarray:
    """Return plane 1 of q4_k and q5_k, from the block's first 16 bytes."""
    rows = len(block)
    a, b, c = (block[..., at : at + 4] for at in (4, 8, 12))
    scale = np.concatenate([a & 63, c & 15 | a >> 2 & 48], axis=2)
    minimum = np.concatenate([b & 63, c >> 4 | b >> 2 & 48], axis=2)
    entries = np.stack([scale, minimum], axis=3).reshape(rows, -1).view(np.uint16)
    return np.concatenate([_pack_scales(entries), _split_by_group(block[..., :4], 4)], axis=2).reshape(rows, -1)


def _join_k_scales(plane: np.ndarray, k: int) -> np.ndarray:
    """Return [rows, B, 16]: d, dmin and the twelve bytes of scales."""
    rows = len(plane)
    groups = plane.reshape(rows, -1, 80)
    entries = (
        np.ascontiguousarray(_unpack_scales(groups[..., :64], k)).view(np.uint8).reshape(rows, k // 256, 8, 2)
    )
    scale, minimum = entries[..., 0], entries[..., 1]
    a = scale[..., :4] | scale[..., 4:] >> 4 << 6
    b = minimum[..., :4] | minimum[..., 4:] >> 4 << 6
    c = scale[..., 4:] & 15 | (minimum[..., 4:] & 15) << 4
    d = groups[..., 64:].reshape(rows, -1, 4)[:, : k // 256]
    return np.concatenate([d, a, b, c], axis=2)


def _unpack_k_nibbles(qs: np.ndarray) -> np.ndarray:
    """Convert [rows, B, 128] to [rows, k]: 32 bytes hold 64 elements, low nibbles first."""
    chunks = qs.reshape(len(qs), -1, 1, 32)
    return np.concatenate([chunks & 15, chunks >> 4], axis=2).reshape(len(qs), -1)


def _pack_k_nibbles(q: np.ndarray) -> np.ndarray:
    chunks = q.reshape(len(q), -1, 2, 32)
    return (chunks[:, :, 0] | chunks[:, :, 1] << 4).reshape(len(q), -1, 128)


def _split_q4_k(block: np.ndarray) -> tuple[np.ndarray, ...]:
    return _pack_nibbles(_unpack_k_nibbles(block[..., 16:])), _split_k_scales(block)


def _join_q4_k(planes: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    return np.concatenate([_join_k_scales(planes[1], k), _pack_k_nibbles(_unpack_nibbles(planes[0], k))], axis=2)


def _split_q5_k(block: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = len(block)
    shifts = np.arange(8, dtype=np.uint8).reshape(8, 1)
    fifth = _pad_values((block[..., None, 16:48] >> shifts & 1).reshape(rows, -1), GROUP)
    high = np.bitwise_or.reduce(fifth.reshape(rows, -1, 8, STEP) << shifts, axis=2)
    return _pack_nibbles(_unpack_k_nibbles(block[..., 48:])), _split_k_scales(block), high.reshape(rows, -1)


def _join_q5_k(planes: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    rows = len(planes[2])
    shifts = np.arange(8, dtype=np.uint8).reshape(8, 1)
    fifth = (planes[2].reshape(rows, -1, 1, STEP) >> shifts & 1).reshape(rows, -1)[:, :k]
    high = np.bitwise_or.reduce(fifth.reshape(rows, -1, 8, 32) << shifts, axis=2)
    low = _pack_k_nibbles(_unpack_nibbles(planes[0], k))
    return np.concatenate([_join_k_scales(planes[1], k), high, low], axis=2)


def _split_q6_k(block: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = len(block)
    halves = block[..., :128].reshape(rows, -1, 1, 64)
    low = np.concatenate([halves & 15, halves >> 4], axis=2).reshape(rows, -1)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(4, 1)
    pairs = block[..., 128:192].reshape(rows, -1, 1, 32) >> shifts & 3
    steps = _pad_values(pairs.reshape(rows, -1), GROUP).reshape(rows, -1, 2, 4, STEP)
    high = (
        _to_words(_to_bytes(np.bitwise_or.reduce(steps << shifts, axis=3))).reshape(rows, -1, 2, 32).swapaxes(2, 3)
    )
    scales = _pad_values(block[..., 192:208].reshape(rows, -1), 64).reshape(rows, -1, 8, 8).swapaxes(2, 3)
    entries = np.concatenate([scales.reshape(rows, -1, 64), _split_by_group(block[..., 208:], 4)], axis=2)
    return _pack_nibbles(low), entries.reshape(rows, -1), _to_bytes(high)


def _join_q6_k(planes: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    rows = len(planes[0])
    halves = _unpack_nibbles(planes[0], k).reshape(rows, -1, 2, 64)
    low = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(rows, -1, 128)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(4, 1)
    steps = _to_bytes(_to_words(planes[2]).reshape(rows, -1, 32, 2).swapaxes(2, 3)).reshape(rows, -1, 1, STEP)
    bits = (steps >> shifts & 3).reshape(rows, -1)[:, :k].reshape(rows, -1, 4, 32)
    high = np.bitwise_or.reduce(bits << shifts, axis=2).reshape(rows, -1, 64)
    groups = planes[1].reshape(rows, -1, 72)
    scales = groups[..., :64].reshape(rows, -1, 8, 8).swapaxes(2, 3).reshape(rows, -1)[:, : k // 16]
    d = groups[..., 64:].reshape(rows, -1, 2)[:, : k // 256]
    return np.concatenate([low, high, scales.reshape(rows, -1, 16), d], axis=2)


def _read_halves(bytes2: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(bytes2).view(np.uint16)[..., 0]


def _write_halves(halves: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(halves).view(np.uint8).reshape(*halves.shape, 2)


_NIBBLES = (512, 128)
FORMATS: dict[str, PackedType] = {
    "q8_0": PackedType(((1024, 256), (64, None)), _split_q8_0, _join_q8_0),
    "q4_0": PackedType((_NIBBLES, (64, None)), _split_q4_0, _join_q4_0),
    "q4_k": PackedType((_NIBBLES, (80, None)), _split_q4_k, _join_q4_k),
    "q5_k": PackedType((_NIBBLES, (80, None), (128, None)), _split_q5_k, _join_q5_k),
    "q6_k": PackedType((_NIBBLES, (72, None), (256, None)), _split_q6_k, _join_q6_k),
    "mxfp4": PackedType((_NIBBLES, (64, None)), _split_mxfp4, _join_mxfp4),
}
WEIGHT_TYPES = (*PLAIN_DTYPES, *FORMATS)  # formats with kernels of a family
Q8_BLOCKS = {
    "q8_0": 32,
    "q4_0": 32,
    "q4_k": 256,
    "q5_k": 256,
    "q6_k": 256,
}  # elements of a block in canonical-1-q8
