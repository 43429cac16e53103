"""<think> reasoning </think> and no calls that are known: DeepSeek R1's distilled models and others."""

from __future__ import annotations

from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.qwen3 import THINK

REASONING_ONLY = Format("think", fits=lambda template: THINK[1] in template, reasoning=THINK)
