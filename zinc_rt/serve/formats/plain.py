"""No reasoning, no calls: the answer is what the model wrote."""

from __future__ import annotations

from zinc_rt.serve.formats.format import Format

PLAIN = Format("plain", fits=lambda template: True)
