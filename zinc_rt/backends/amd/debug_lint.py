"""Debug mode: dwords that would stop a queue are refused before it sees them."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint import Mapped, QueueInterface, errors, lint
from zinc_rt.pm4.packet import EncodeError
from zinc_rt.pm4.packets import ReleaseMem


def refuse_fence_without_write_back(fence: ReleaseMem, name: str, generation: Generation) -> None:
    """Raises EncodeError for the fence of an executable whose stores it leaves in L2. The linter's own rule sees
    no dispatch in a ring that only calls them."""
    write_back = next(bits for bits in gcr.RELEASE[generation] if bits.name == "GL2_WB")
    if not write_back.of(fence.gcr_cntl):
        raise EncodeError(
            f"{name}: fence-write-back: its RELEASE_MEM does not write L2 back, where dispatches have stored",
            next="set GL2_WB: else readers of the fence see older bytes",
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
    """Raises EncodeError for the first thing the linter calls an error."""
    refused = errors(lint(words, generation, queue=queue, mapped=mapped, is_ib=is_ib))
    if refused:
        first = refused[0]
        raise EncodeError(f"{name}, dword {first.offset}: {first.rule}: {first.text}", next=first.next)
