"""An answer as a sequence of blocks, the form of Anthropic's messages and of OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.formats.parser import CallDelta, Delta

BlockKind = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class AnswerBlock:
    """A part of an answer. `text`: the arguments, if it is a tool call, which also has an id and a name."""

    index: int
    kind: BlockKind
    id: str = ""
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block begins, has more text, or ends."""

    block: AnswerBlock
    change: Literal["begin", "text", "end"]
    text: str = ""


@dataclass(slots=True)
class AnswerBlocks:
    """The blocks of an answer so far. At most the last one is open."""

    blocks: list[AnswerBlock] = field(default_factory=list)
    _open: bool = False
    _call: int = -1  # the call of the open block

    def feed(self, deltas: Iterable[Delta]) -> list[BlockChange]:
        """Add the next parts of the answer."""
        changes: list[BlockChange] = []
        for delta in deltas:
            for call in delta.tool_calls:
                changes += self._add("call", call.arguments, call)
            if delta.reasoning_content:
                changes += self._add("reasoning", delta.reasoning_content)
            if delta.content:
                changes += self._add("text", delta.content)
        return changes

    async def collect(self, answers: Answers) -> None:
        """Wait until the only choice of the answers is complete."""
        async with answers:
            async for pieces in answers:
                for piece in pieces:
                    self.feed(piece.deltas)

    def close(self) -> list[BlockChange]:
        """End the last block."""
        changes = [BlockChange(self.blocks[-1], "end")] if self._open else []
        self._open = False
        return changes

    def _add(self, kind: BlockKind, text: str, call: CallDelta | None = None) -> list[BlockChange]:
        changes: list[BlockChange] = []
        number = -1 if call is None else call.index
        if not self._open or self.blocks[-1].kind != kind or number != self._call:
            changes += self.close()
            block = AnswerBlock(len(self.blocks), kind)
            if call is not None:
                block.id, block.name = call.id or "", call.name or ""
            self.blocks.append(block)
            self._open, self._call = True, number
            changes.append(BlockChange(block, "begin"))
        if text:
            self.blocks[-1].text += text
            changes.append(BlockChange(self.blocks[-1], "text", text))
        return changes
