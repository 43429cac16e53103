"""Debug mode: dwords that would stop a queue are refused before it sees them."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.layout import EncodeError
from zinc_rt.pm4.lint import Mapped, Queue, errors, lint


def refuse_illegal(
    words: Sequence[int], name: str, generation: Generation, *, queue: Queue, mapped: Mapped | None, is_ib: bool
) -> None:
    """Raises EncodeError for the first thing the linter calls an error."""
    refused = errors(lint(words, generation, queue=queue, mapped=mapped, is_ib=is_ib))
    if refused:
        first = refused[0]
        raise EncodeError(f"{name}, dword {first.offset}: {first.rule}: {first.text}", next=first.next)
