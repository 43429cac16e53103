"""Which findings are only a remark about a kernel, by the compiler that made it.

RADV of Mesa 25.0.7 waits for what a comparison writes, and not for a carry, the second result of its instruction;
the RDNA4 guide, LLVM and later Mesas do (docs/radv.md). Whether that ever shows `pm4-test --learn` asks a card
(sgpr_read). In our own code it is a finding always.
"""

from __future__ import annotations

REMARKS = {"RADV/": frozenset({"sgpr-read"})}  # by how a container's compiler begins


def is_remark(rule: str, compiler: str) -> bool:
    """Whether a finding of `rule` is one in code of this compiler ("": the assembler)."""
    return any(compiler.startswith(prefix) and rule in rules for prefix, rules in REMARKS.items())
