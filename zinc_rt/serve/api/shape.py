"""Response formatting common to chat and plain completions: the head, and answers as chunks or as one body."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol

from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.replies import OurPart
from zinc_rt.serve.api.schema import SamplingBody, StreamOptions
from zinc_rt.serve.api.sse import DONE, PING, PING_SECONDS, format_event
from zinc_rt.serve.api.text import ChoicePiece

PREEMPTED = b": preempted\n\n"
PROGRESS_SECONDS = 0.1  # how often a prompt's progress is looked at, where it is asked for


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """The leading fields of an answer and of each of its chunks."""

    id: str
    created: int
    model: str
    system_fingerprint: str

    def fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
        }


class Shape(Protocol):
    """The response format of one kind of completion. `chunk_object`: the `object` field of its chunks."""

    head: ReplyHead
    chunk_object: str

    def delta(self, piece: ChoicePiece) -> dict[str, Any] | None:
        """Return the piece as a choice of a chunk, or None if it has no content."""
        ...

    def whole(self) -> Any:
        """Return the complete answer as one body."""
        ...


def is_empty_piece(piece: ChoicePiece, body: SamplingBody) -> bool:
    """Return whether a piece without text, such as part of a character, needs no chunk because the request
    asked for text only."""
    return piece.finish_reason is None and not piece.logprobs and not body.return_token_ids


def make_extension_fields(answers: Answers) -> OurPart:
    """Return the extension fields, which include what reproduces the answer."""
    part: OurPart = {"seed": answers.seed}
    if answers.expired:
        part["expired"] = True
    if findings := answers.findings:
        part["findings"] = {"count": len(findings), "first": findings[0].text}
    if errors := [choice.reader.error for choice in answers.choices if choice.reader.error]:
        part["tool_parse_error"] = errors[0]
    return part


async def iterate_chunks(answers: Answers, shape: Shape, body: SamplingBody) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream, with [DONE] at the end and a comment after every 15 s of silence. Raises
    ServeError."""
    options = body.stream_options or StreamOptions()
    head = shape.head.fields(shape.chunk_object)
    silence = _KeepAlive(answers, head, progress=bool(body.return_progress))
    async with answers:
        async for pieces in answers:
            if not pieces:
                if comment := silence.make_comment():
                    yield comment
                continue
            silence.seconds = 0.0
            choices = []
            for piece in pieces:
                choice = shape.delta(piece)
                if choice is None:
                    continue
                chunk = {**head, "choices": [choice]}
                if piece.finish_reason is not None:
                    chunk["zinc_rt"] = make_extension_fields(answers)
                if options.continuous_usage_stats:
                    chunk["usage"] = answers.usage()
                choices.append(format_event(chunk))
            if choices:
                yield b"".join(choices)
        if options.include_usage:
            yield format_event(
                {**head, "choices": [], "usage": answers.usage(), "zinc_rt": make_extension_fields(answers)}
            )
        yield DONE


class _KeepAlive:
    """The event to send when no piece arrives."""

    def __init__(self, answers: Answers, head: dict[str, Any], *, progress: bool) -> None:
        self.answers, self.head, self.progress = answers, head, progress
        self.seconds = 0.0
        self.computed = -1
        answers.quiet_seconds = PROGRESS_SECONDS if progress else PING_SECONDS

    def make_comment(self) -> bytes:
        assert self.answers.quiet_seconds is not None
        self.seconds += self.answers.quiet_seconds
        if self.progress and (computed := self.answers.computed_tokens) > self.computed:
            self.computed = computed
            usage = self.answers.usage()
            progress = {
                "total": usage["prompt_tokens"],
                "cache": usage["prompt_tokens_details"]["cached_tokens"],
                "processed": computed,
            }
            self.seconds = 0.0
            return format_event({**self.head, "choices": [], "prompt_progress": progress})
        if self.seconds < PING_SECONDS:
            return b""
        self.seconds = 0.0
        return PREEMPTED if self.answers.preempted else PING
