"""Which findings are only a remark about a kernel, by the compiler that made it.

RADV of Mesa 25.0.7 waits for what a comparison writes, and not for a carry, the second result of its instruction;
the RDNA4 guide, LLVM and later Mesas do (docs/radv.md). Whether that ever shows `pm4-test --learn` asks a card
(sgpr_read). LLVM knows the SGPR read hazard from release 20 on: clang 19 puts no s_wait_alu
anywhere, and all that it makes for gfx12 has it. In our own code both are findings always.
"""

from __future__ import annotations

import re

REMARKS = {"RADV/": frozenset({"sgpr-read"})}  # by how a container's compiler begins


_CLANG = re.compile(r"clang version (\d+)\.")
_HAZARD_KNOWN_FROM = 20  # LLVM's release whose GCNHazardRecognizer has fixVALUReadSGPRHazard


def is_remark(rule: str, compiler: str) -> bool:
    """Whether a finding of `rule` is one in code of this compiler, as a container or a code object's comments name
    it ("": the assembler)."""
    clang = _CLANG.search(compiler)
    if clang is not None and rule == "sgpr-read":
        return int(clang[1]) < _HAZARD_KNOWN_FROM
    return any(compiler.startswith(prefix) and rule in rules for prefix, rules in REMARKS.items())
