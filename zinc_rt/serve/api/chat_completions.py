"""Response format of POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.replies import ChatChoice, ChatCompletion, ChatLogprobs, ChatMessage
from zinc_rt.serve.api.schema import ChatBody
from zinc_rt.serve.api.shape import ReplyHead, is_empty_piece, make_extension_fields
from zinc_rt.serve.api.text import ChoicePiece
from zinc_rt.serve.api.token_texts import format_chat_logprobs
from zinc_rt.serve.formats.parser import CallDelta


class ChatShape:
    """Chat completion chunks. The first chunk of a choice has its role, the last its finish_reason."""

    chunk_object = "chat.completion.chunk"

    def __init__(self, answers: Answers, body: ChatBody, head: ReplyHead) -> None:
        self.answers, self.body, self.head = answers, body, head
        self._told = [False] * len(answers.choices)

    def delta(self, piece: ChoicePiece) -> dict[str, Any] | None:
        delta: dict[str, Any] = {}
        if not self._told[piece.index]:
            self._told[piece.index] = True
            delta = {"role": "assistant", "content": ""}
        for name in ("content", "reasoning_content"):
            if text := "".join(getattr(delta, name) for delta in piece.deltas):
                delta[name] = text
        if calls := [_format_call_delta(call) for delta in piece.deltas for call in delta.tool_calls]:
            delta["tool_calls"] = calls
        if not delta and is_empty_piece(piece, self.body):
            return None
        choice: dict[str, Any] = {
            "index": piece.index,
            "delta": delta,
            "logprobs": self._format_logprobs(piece.logprobs),
            "finish_reason": piece.finish_reason,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice

    def whole(self) -> ChatCompletion:
        completion: ChatCompletion = {
            **self.head.fields("chat.completion"),  # type: ignore[typeddict-item]
            "choices": [self._format_choice(index) for index in range(len(self.answers.choices))],
            "usage": self.answers.usage(),
            "zinc_rt": make_extension_fields(self.answers),
        }
        if self.body.return_token_ids:
            completion["prompt_token_ids"] = list(self.answers.asks[0].tokens)
        return completion

    def _format_choice(self, index: int) -> ChatChoice:
        answer = self.answers.choices[index]
        message: ChatMessage = {"role": "assistant", "content": answer.content, "refusal": None}
        if answer.reasoning_content:
            message["reasoning_content"] = answer.reasoning_content
        if answer.tool_calls:
            message["content"] = answer.content or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.tool_calls
            ]
        choice: ChatChoice = {
            "index": index,
            "message": message,
            "logprobs": self._format_logprobs(answer.logprobs),
            "finish_reason": answer.ended,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(answer.token_ids)
        return choice

    def _format_logprobs(self, logprobs: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        if not self.body.logprobs:
            return None
        return {"content": format_chat_logprobs(self.answers.model.core.tokenizer, logprobs), "refusal": None}


def _format_call_delta(call: CallDelta) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": call.arguments}
    if call.name is None:
        return {"index": call.index, "function": function}
    return {"index": call.index, "id": call.id, "type": "function", "function": {"name": call.name, **function}}
