"""Convert the tokens of one answer to deltas: decode characters, then find stop strings, then markers."""

from __future__ import annotations

from collections.abc import Container, Sequence

from zinc_rt.engine.answering import TextOutput
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.formats.format import Format, Tools
from zinc_rt.serve.formats.parser import AnswerParser, Delta


class AnswerText:
    """One choice of a chat. `stopped`: the stop string, or the single call, that ended it; `calls` and
    `error`: from its parser.

        made = AnswerText(tokenizer, format, sampling.stop, tools=tools, prompt=prompt_text)
        for token in delivered.token_ids: deltas += made.feed(token)
        deltas += made.close(cut=delivered.finish_reason == "length")

    Stop strings are searched in the text between two marker tokens.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        format: Format,
        stops: Sequence[str] = (),
        *,
        tools: Tools | None = None,
        prompt: str = "",
        silent: Container[int] | None = None,
        one_call: bool = False,
        stream_calls: bool = False,
    ) -> None:
        """Create a reader. `silent`: tokens that are not shown, by default the end tokens. `one_call`: end
        the answer after the first call. `stream_calls`: deliver arguments while they are made."""
        ids = ((tokenizer.added_id(mark), mark) for mark in format.marks)
        self._marks = {id: mark for id, mark in ids if id is not None}
        self._silent = tokenizer.eog_ids if silent is None else silent
        self._text = TextOutput(tokenizer.stream_decoder(), stops)
        self._one_call = one_call
        self._parser = AnswerParser(
            format,
            tools=tools,
            prompt=prompt,
            special=set(self._marks.values()),
            one_call=one_call,
            stream_calls=stream_calls,
        )

    @property
    def stopped(self) -> str | None:
        return "" if self._one_call and self.calls else self._text.stopped

    @property
    def calls(self) -> int:
        return self._parser.calls

    @property
    def error(self) -> str | None:
        return self._parser.error

    def feed(self, token: int) -> list[Delta]:
        """Return the deltas that are final after this token. Text after a stop string is dropped."""
        if self.stopped is not None or token in self._silent:
            return []
        mark = self._marks.get(token)
        if mark is None:
            return self._parser.feed(self._text.feed(token))
        before = self._parser.feed(self._text.close())
        return before + self._parser.mark(mark)

    def close(self, *, cut: bool = False) -> list[Delta]:
        """Return the remaining deltas after the last token. `cut`: a limit ended the answer."""
        return self._parser.feed(self._text.close()) + self._parser.close(cut=cut)
