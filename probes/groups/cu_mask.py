"""P47: queues restricted to some compute units."""

from __future__ import annotations

import errno

from zinc_rt.kmd.errors import format_errno
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.probes.groups.dispatch import SHADER_SHARED, allocate_result
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.refusals import Refusal, catch_errno, check_refusals
from zinc_rt.probes.kit.shaders import ShaderBench, read_dwords, require_gfx12
from zinc_rt.probes.outcome import T1, Outcome, check, match_failed_call, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

GROUPS = 512
WGP_BITS = 0b1111 << 10 | 1 << 16 | 0b111 << 18  # HW_ID1: WGP_ID, SA_ID, SE_ID
ONE_PAIR, OTHER_PAIR, FOUR_PAIRS = 0b11, 0b1100, 0xFF


@probe("P47", "CU mask", (T1,), hazard=1, needs=("P33", "P15"))
@proves(
    "a queue's waves run only on the compute units in its mask",
    passes_when="half a pair EINVAL, an unknown queue EFAULT; one pair is one workgroup processor, other pairs "
    "are others",
)
@fails_like(*SHADER_SHARED)
@fails(
    symptom("split-accepted"),
    "compute units are not masked in pairs here: a chip before RDNA, or a kernel that does not check",
    "masks of whole pairs are valid everywhere",
)
@fails(
    match_failed_call("SET_CU_MASK"),
    "the kernel rejects the mask: its length is not whole dwords, or a debugger controls it",
    "`dmesg | grep -i kfd`",
)
@fails(
    symptom("mask-ignored"),
    "the mask did not reach the queue's MQD, or the fields of HW_ID1 differ on this chip",
    "`zinc-rt-pm4-test --learn F` records which bits of HW_ID1 differ between waves",
)
@fails(
    symptom("one-processor"),
    "every wave ran on one processor: the dispatch was too short to spread, or another mask is active",
    "run it again on an idle GPU; HSA_CU_MASK must not be set",
)
@require_gfx12
def probe_cu_mask(c: ProbeContext) -> Outcome:
    bench = ShaderBench(c)
    queue = bench.queue.kmd_queue
    words = -(-c.node.compute_units // 32)

    def mask_words(bits: int) -> tuple[int, ...]:
        return tuple(bits >> 32 * index & 0xFFFFFFFF for index in range(words))

    def expect_mask(queue_id: int, bits: int) -> None:
        array = HostArray(b"".join(word.to_bytes(4, "little") for word in mask_words(bits)))
        request = kfd.SET_CU_MASK.new(queue_id=queue_id, num_cu_mask=32 * words, cu_mask_ptr=array.address)
        c.process.file.ioctl(kfd.IOC_SET_CU_MASK, request, f"mask {bits:#x}")

    split = catch_errno(lambda: expect_mask(queue.queue_id, 0b01))
    check(
        split == errno.EINVAL, "split-accepted", f"half a pair of compute units as a mask: {format_errno(split)}"
    )
    every = (1 << c.node.compute_units) - 1
    refusals = check_refusals(
        [Refusal("a mask for an unknown queue", lambda: expect_mask(4242, every), (errno.EFAULT,))]
    )
    program = bench.load("hw_id")
    used = {}
    for name, bits in (("all", every), ("one", ONE_PAIR), ("other", OTHER_PAIR), ("four", FOUR_PAIRS)):
        c.gpu.queues.set_cu_mask(queue, mask_words(bits))
        out = allocate_result(bench, 8 * GROUPS)
        bench.run(program, [out], groups=(GROUPS, 1, 1))
        used[name] = {word & WGP_BITS for word in read_dwords(out, 2 * GROUPS)[::2]}
    counts = {name: len(item) for name, item in used.items()}
    for name, maximum in (("one", 1), ("other", 1), ("four", 4)):
        check(
            counts[name] <= maximum,
            "mask-ignored",
            f"{counts[name]} workgroup processors ran waves, the mask has {maximum}",
            measure=counts,
        )
    check(
        not used["one"] & used["other"], "mask-ignored", "two masks without a common bit used the same processor"
    )
    check(
        counts["all"] > counts["four"], "one-processor", f"with every bit set {counts['all']} processors ran waves"
    )
    return passed(**{f"processors_{name}": count for name, count in counts.items()}, **refusals.measure)
