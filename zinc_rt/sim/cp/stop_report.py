"""The report of a stopped queue: the position, the packet, the reason, and the packets before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.interfaces import HardwareQueue

SHOWN_DW = 16


@dataclass(frozen=True, slots=True)
class QueueStop:
    """`place` names the dword ("ring dword 0x1c (position 28)"); `words` is the packet there, or its
    beginning."""

    place: str
    words: tuple[int, ...]
    offset: int  # of words[0] in its buffer
    sentence: str


def report(
    queue: HardwareQueue,
    stop: QueueStop,
    generation: Generation | None,
    *,
    before: Sequence[str],
) -> str:
    """Return the report. `generation` None: not PM4, so the dwords are shown undecoded."""
    lines = [f"{queue.kind.value} queue {queue.queue_id} stopped at {stop.place}: {stop.sentence}"]
    shown = stop.words[:SHOWN_DW]
    if shown and generation is not None:
        lines += ["  " + line for line in disassemble(shown, generation, offset=stop.offset).splitlines()]
    elif shown:
        lines += [f"  0x{stop.offset + index:04x}  {word:08x}" for index, word in enumerate(shown)]
    if len(stop.words) > SHOWN_DW:
        lines.append(f"  and {len(stop.words) - SHOWN_DW} dwords more")
    if before:
        lines.append("  ran before: " + ", ".join(before))
    return "\n".join(lines)
