"""FLASH_ATTN_BATCHED: FLASH_ATTN for several queries of one slot; on this tier the same computation."""

from __future__ import annotations

from zinc_rt.kernels.reference.flash_attn import flash_attn

flash_attn_batched = flash_attn
