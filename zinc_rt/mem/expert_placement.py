"""Where experts may be asked to lie. It imports nothing: every command reads its settings before its help."""

from __future__ import annotations

from typing import Literal

Experts = Literal["auto", "vram", "gtt"]  # in host memory as far as VRAM is full; in VRAM; in host memory
SETTING = "ZINC_RT_EXPERTS"
