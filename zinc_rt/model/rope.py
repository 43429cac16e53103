"""RoPE tables: cosines and sines of every position and pair, computed in float64 and rounded once, shared by
all tiers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.model.hyper import HyperParameters

WIDEST = 1 << 16  # far above any real head; a table of a damaged file's width would fill the memory


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """`<arch>.rope.scaling.*`: how positions beyond the training length are scaled."""

    type: str = "linear"
    factor: float = 1.0
    original_context: int = 0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    log_multiplier: float = 0.0

    @property
    def yarn(self) -> bool:
        return self.type == "yarn"

    @property
    def frequency_scale(self) -> float:
        return 1.0 if self.type == "none" or self.factor == 0 else 1.0 / self.factor

    def compute_magnitude(self, *, mla: bool = False) -> float:
        """Return the factor of cosines and sines (YaRN's attention temperature, as llama.cpp computes it)."""
        if not self.yarn:
            return self.attn_factor
        lm = self.log_multiplier
        if lm == 0:
            ratio = self._compute_growth(1.0)
        else:
            ratio = self._compute_growth(lm if mla and lm != 1.0 else 1.0) / self._compute_growth(lm)
        return ratio * self.attn_factor

    def _compute_growth(self, k: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * k * math.log(self.factor) + 1.0


def read_scaling(hyper: HyperParameters, *, betas: bool = False, log_multiplier_unit: float = 1.0) -> RopeScaling:
    """Read the scaling. `betas`: whether this architecture reads the YaRN betas from the file (most ignore
    them).
    """
    kind = hyper.text("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise UnsupportedError(
            f"{hyper.source}: unknown rope.scaling.type {kind!r}; expected one of: none, linear, yarn, longrope"
        )
    factor = hyper.read_real("rope.scaling.factor", hyper.read_real("rope.scale_linear", 0.0))
    if factor < 0:
        raise InputError(f"{hyper.source}: rope.scaling.factor is {factor}, expected a positive number")
    return RopeScaling(
        type=kind,
        factor=factor or 1.0,
        original_context=hyper.read_positive(
            "rope.scaling.original_context_length", hyper.read_positive("context_length")
        ),
        attn_factor=hyper.read_real("rope.scaling.attn_factor", 1.0),
        beta_fast=hyper.read_real("rope.scaling.yarn_beta_fast", 32.0) if betas else 32.0,
        beta_slow=hyper.read_real("rope.scaling.yarn_beta_slow", 1.0) if betas else 1.0,
        log_multiplier=hyper.read_real("rope.scaling.yarn_log_multiplier", 0.0) / log_multiplier_unit,
    )


def make_rope_tables(
    *,
    ctx: int,
    n_rot: int,
    base: float,
    scaling: RopeScaling | None = None,
    factors: np.ndarray | None = None,
    sections: list[int] | None = None,
    mla: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin, float32 [ctx, n_rot // 2].

    `factors` [n_rot // 2] divide the frequencies; `sections` are those of interleaved multi-axis RoPE. Raise
    InputError for an invalid width, base, factors, sections or YaRN betas.
    """
    scaling = scaling or RopeScaling()
    if n_rot % 2 or not 0 < n_rot <= WIDEST:
        raise InputError(f"rope.dimension_count is {n_rot}, expected an even number up to {WIDEST}")
    if base <= 1:
        raise InputError(f"rope.freq_base is {base}, expected more than 1")
    if factors is not None and factors.shape != (n_rot // 2,):
        raise InputError(f"RoPE frequency factors have shape {factors.shape}, expected ({n_rot // 2},)")
    pairs = np.arange(n_rot // 2)
    frequency = np.float64(base) ** (-2.0 * pairs / n_rot)
    if factors is not None:
        frequency = frequency / factors.astype(np.float64)
    squeezed = frequency * scaling.frequency_scale
    if scaling.yarn:
        low, high = (
            _find_yarn_pair(beta, n_rot, base, scaling) for beta in (scaling.beta_fast, scaling.beta_slow)
        )
        low, high = max(0.0, math.floor(low)), min(n_rot - 1.0, math.ceil(high))
        ramp = 1.0 - np.clip((pairs - low) / max(0.001, high - low), 0.0, 1.0)
        squeezed = squeezed * (1.0 - ramp) + frequency * ramp
    if sections is not None:
        squeezed = np.where(find_rotated_pairs(sections, n_rot), squeezed, 0.0)
    angle = np.arange(ctx, dtype=np.float64)[:, None] * squeezed
    magnitude = scaling.compute_magnitude(mla=mla)
    return (np.cos(angle) * magnitude).astype(np.float32), (np.sin(angle) * magnitude).astype(np.float32)


def _find_yarn_pair(beta: float, n_rot: int, base: float, scaling: RopeScaling) -> float:
    """Return the pair whose wavelength fits `beta` times into the original context."""
    if beta <= 0:
        raise InputError(f"a YaRN beta is {beta}, expected a positive number")
    return n_rot * math.log(scaling.original_context / (2 * math.pi * beta)) / (2 * math.log(base))


def find_rotated_pairs(sections: list[int], n_rot: int) -> np.ndarray:
    """Return the pairs that are rotated for text under interleaved multi-axis RoPE: the time, height and width
    streams all carry the position, the fourth stream is zero."""
    total = sum(sections)
    if len(sections) < 4 or total <= 0:
        raise InputError(f"rope.dimension_sections is {sections}, expected four counts of pairs")
    c = np.arange(n_rot // 2) % total
    t, h, w = sections[0], sections[1], sections[2]
    return ((c % 3 == 1) & (c < 3 * h)) | ((c % 3 == 2) & (c < 3 * w)) | ((c % 3 == 0) & (c < 3 * t))
