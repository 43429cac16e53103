"""Work of the first launch of a process that does not depend on its kernel."""

from __future__ import annotations

import threading

from zinc_rt.isa import Target, decode
from zinc_rt.sim.shader.run.compile import code_identity
from zinc_rt.sim.shader.run.group_runner import runners

# first dwords of VOP1, VOP2, VOPC, VOP3, VOP3P, DS, GLOBAL: the encodings whose decoders have tables
_ENCODINGS = (0x7E000280, 0x00000280, 0x7C000280, 0xD5000000, 0xCC000000, 0xD8000000, 0xEE000000)


def warm_up_in_background(target: Target) -> None:
    """Start a thread that loads the workgroup runner, the digest of the sources and the decoder's tables."""
    threading.Thread(target=_warm_up, args=(target,), name="warm-up", daemon=True).start()


def _warm_up(target: Target) -> None:
    for wave in (32, 64):
        for first in _ENCODINGS:
            decode(first.to_bytes(4, "little") + bytes(12), 0, target.with_wave(wave))
    code_identity()
    runners()
