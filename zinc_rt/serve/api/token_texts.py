"""Token names in logprobs: text, or bytes if the token is part of a character."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.api.replies import ChatLogprob, TopLogprob

LEAST_LOGPROB = -9999.0  # JSON has no infinity; OpenAI says it so


def format_token_text(tokenizer: Tokenizer | None, id: int) -> str:
    """Return a token's text; bytes:\xe2\x82 for part of a character, token_id:17 without a tokenizer."""
    if tokenizer is None:
        return f"token_id:{id}"
    piece = tokenizer.piece_bytes(id)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def format_chat_logprobs(tokenizer: Tokenizer | None, logprobs: Sequence[TokenLogprob]) -> list[ChatLogprob]:
    """Return the logprobs in the format of chat completions."""

    def format_one(id: int, logprob: float) -> TopLogprob:
        piece = b"" if tokenizer is None else tokenizer.piece_bytes(id)
        return {
            "token": format_token_text(tokenizer, id),
            "logprob": max(logprob, LEAST_LOGPROB),
            "bytes": list(piece),
        }

    return [
        {
            **format_one(logprob.token_id, logprob.logprob),
            "top_logprobs": [format_one(id, logprob) for id, logprob in logprob.top],
        }
        for logprob in logprobs
    ]
