"""Which findings of the static sanitizer are only a remark about a kernel, by the compiler that made it.

RADV puts no s_wait_alu between the halves of a 64-bit addition whose carry is in VCC, where LLVM does, by the
RDNA4 guide's rule. Either the hardware is kinder than the rule or RADV errs: `pm4-test --learn` asks a card
(sgpr_read). In our own code it is a finding always.
"""

from __future__ import annotations

REMARKS = {"RADV/": frozenset({"sgpr-read"})}  # by how a container's compiler begins


def is_remark(rule: str, compiler: str) -> bool:
    """Whether a finding of `rule` is one in code of this compiler ("": the assembler)."""
    return any(compiler.startswith(prefix) and rule in rules for prefix, rules in REMARKS.items())
