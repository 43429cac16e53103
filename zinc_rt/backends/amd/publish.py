"""The one function that hands dwords to the GPU, compiled: copy, store fence, wptr, store fence, doorbell.

Python cannot order stores, so there is no Python version. The ring may be write-combined and the doorbell is
device memory: each `sfence` makes earlier stores visible before later ones (errata 18), and the doorbell is one
aligned 64-bit store. wptr and doorbell count dwords and are never wrapped.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from zinc_rt.host.errors import UnsupportedError

Publish = Callable[[int, int, int, int], int]
"""(target address, wptr in dwords, source address, dwords) -> the new wptr. The room was reserved before."""

STORE_FENCE = {"x86_64": "sfence"}  # platform.machine() → the instruction; kfd.md §3 step 13

# uint64_t publish(struct target *target, uint64_t wptr, const uint32_t *source, uint64_t count)
# {
#     uint64_t end = wptr + count;
#     if (count == 0)
#         return end;
#     for (uint64_t i = 0; i < count; i++)
#         target->ring[(wptr + i) & target->mask] = source[i];      // volatile: neither merged nor left out
#     FENCE;
#     atomic_store(target->wptr, end);
#     FENCE;
#     atomic_store(target->doorbell, end);
#     return end;
# }
# with struct target {uint32_t *ring; uint64_t mask, *wptr, *doorbell;}, the words of PublishTarget
_IR = """
define i64 @publish(ptr %target, i64 %wptr, ptr %source, i64 %count) {
entry:
  %ring.at = getelementptr i64, ptr %target, i64 0
  %mask.at = getelementptr i64, ptr %target, i64 1
  %wptr.at = getelementptr i64, ptr %target, i64 2
  %doorbell.at = getelementptr i64, ptr %target, i64 3
  %ring = load ptr, ptr %ring.at
  %mask = load i64, ptr %mask.at
  %wptr.memory = load ptr, ptr %wptr.at
  %doorbell = load ptr, ptr %doorbell.at
  %end = add i64 %wptr, %count
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %done, label %copy

copy:
  %i = phi i64 [ 0, %entry ], [ %next, %copy ]
  %from = getelementptr i32, ptr %source, i64 %i
  %word = load i32, ptr %from, align 4
  %position = add i64 %wptr, %i
  %index = and i64 %position, %mask
  %to = getelementptr i32, ptr %ring, i64 %index
  store volatile i32 %word, ptr %to, align 4
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %copy, label %ring.it

ring.it:
  call void asm sideeffect "FENCE", "~{memory}"()
  store atomic volatile i64 %end, ptr %wptr.memory monotonic, align 8
  call void asm sideeffect "FENCE", "~{memory}"()
  store atomic volatile i64 %end, ptr %doorbell monotonic, align 8
  br label %done

done:
  ret i64 %end
}
"""


class PublishTarget:
    """The store targets of one queue. `address` is the argument of publish, valid as long as this object lives."""

    def __init__(self, *, ring_address: int, ring_dw: int, wptr_address: int, doorbell_address: int) -> None:
        if ring_dw < 1 or ring_dw & (ring_dw - 1):
            raise ValueError(f"the ring has {ring_dw} dwords; expected a power of two")
        if wptr_address % 8 or doorbell_address % 8:
            raise ValueError(
                f"wptr at {wptr_address:#x}, doorbell at {doorbell_address:#x}: expected multiples of 8"
            )
        self._words = (ctypes.c_uint64 * 4)(ring_address, ring_dw - 1, wptr_address, doorbell_address)
        self.address = ctypes.addressof(self._words)


class _CompiledPublish:
    """The owner of the machine code, which keeps it alive while it can be called."""

    def __init__(self) -> None:
        machine = _create_target_machine()
        module = llvm.parse_assembly(generate_source(platform.machine()))
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        # PYFUNCTYPE: the call is far shorter than handing the interpreter lock over and back
        prototype = ctypes.PYFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 4)
        self.call = prototype(self._engine.get_function_address("publish"))


@functools.cache
def _compile() -> _CompiledPublish:
    return _CompiledPublish()


def load_publisher() -> Publish:
    """Return the compiled publish. Raise UnsupportedError on a host without a known store fence."""
    return _compile().call


def generate_source(host: str) -> str:
    """Return the LLVM IR for a host named as by platform.machine()."""
    if host not in STORE_FENCE:
        raise UnsupportedError(
            f"tiers t1 and t2 on a {host} host: no store fence is known for it",
            next=f"use --tier t_cpu, or a host of {', '.join(STORE_FENCE)}",
        )
    return _IR.replace("FENCE", STORE_FENCE[host])


def _create_target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_default_triple().create_target_machine(opt=2)
