"""Debug mode: refuse dwords that would stop a queue before they are submitted."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint import Mapped, QueueInterface, errors, lint
from zinc_rt.pm4.packet import EncodeError
from zinc_rt.pm4.packets import ReleaseMem


def refuse_fence_without_write_back(fence: ReleaseMem, name: str, generation: Generation) -> None:
    """Raise EncodeError for a fence that does not write L2 back after dispatches with stores. The linter's
    rule cannot see dispatches in a called indirect buffer."""
    write_back = next(bits for bits in gcr.RELEASE[generation] if bits.name == "GL2_WB")
    if not write_back.of(fence.gcr_cntl):
        raise EncodeError(
            f"{name}: fence-write-back: its RELEASE_MEM does not write back L2, which contains stores of "
            "dispatches",
            next="set GL2_WB: otherwise readers of the fence see stale bytes",
        )


def refuse_illegal(
    words: Sequence[int],
    name: str,
    generation: Generation,
    *,
    queue: QueueInterface,
    mapped: Mapped | None,
    is_ib: bool,
) -> None:
    """Raise EncodeError for the linter's first error."""
    refused = errors(lint(words, generation, queue=queue, mapped=mapped, is_ib=is_ib))
    if refused:
        first = refused[0]
        raise EncodeError(f"{name}, dword {first.offset}: {first.rule}: {first.text}", next=first.next)
