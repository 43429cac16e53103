"""Initial wave data for the workgroup runner: a state header, and the shapes of a launch's workgroups."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from zinc_rt.sim.shader.launch_setup import LaunchSetup, Triple
from zinc_rt.sim.shader.layout import NO_PHASE, STATE, VGPR_BLOCK
from zinc_rt.sim.shader.run.group_runner import MAX_WAVES, SHAPE


def make_state_template(launch: LaunchSetup) -> np.ndarray:
    """Return a wave's initial state header without the fields set by the runner, as [STATE.size_bytes] uint8."""
    raw = np.zeros(STATE.size_bytes, np.uint8)
    header = raw.view(STATE.dtype)[0]
    header["barrier_phase"] = NO_PHASE
    header["lds_bytes"] = launch.lds_bytes
    header["vgprs"] = VGPR_BLOCK if launch.dynamic_vgprs else launch.vgprs
    header["scratch_bytes"] = launch.scratch_bytes
    count = len(launch.user_data)
    header["sgprs"][:count] = launch.user_data
    return raw


@functools.lru_cache(maxsize=256)
def make_group_shape(threads: Triple, wave: int, id_axes: int = 3) -> np.ndarray:
    """Return a SHAPE record (one element): the waves of a workgroup of that size. `id_axes`: of the work-item id;
    the bits of the others are 0.
    """
    x, y, z = threads
    total = x * y * z
    record = np.zeros(1, SHAPE.dtype)
    waves = -(-total // wave)
    if not 0 < waves <= MAX_WAVES:
        raise ValueError(f"unsupported workgroup of {total} threads")
    record["waves"], record["threads"] = waves, total
    number = np.arange(waves * wave, dtype=np.uint32)
    ids = number % x | (number // x % y) << 10 | (number // (x * y)) << 20
    ids &= (1 << 10 * id_axes) - 1
    record["v0"][0, : waves * wave] = np.where(number < total, ids, 0)
    for index in range(waves):
        lanes = min(wave, total - index * wave)
        record["exec"][0, index] = (1 << lanes) - 1
    return record


def make_group_shapes(launch: LaunchSetup) -> list[np.ndarray]:
    """Return eight SHAPE records, indexed by the axes that are at their last workgroup: bit 0 x, bit 1 y, bit 2
    z.
    """
    return [
        make_group_shape(
            _find_sizes(launch.group_threads, launch.last_threads, which), launch.wave, launch.id_axes
        )
        for which in range(8)
    ]


def _find_sizes(full: Sequence[int], last: Sequence[int], which: int) -> Triple:
    x, y, z = (last[axis] if which >> axis & 1 else full[axis] for axis in range(3))
    return x, y, z
