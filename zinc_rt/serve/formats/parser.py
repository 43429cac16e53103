"""An incremental parser of answers: reasoning, content, tool calls.

The same state machine serves all families; a Format defines the markers. A call is delivered when it is
complete and valid, so a malformed call is never delivered as a call, and a valid call never as content.

With `stream_calls`, the arguments of a call of one of the tools are delivered while they are made, as the model
writes them. If such a call turns out to be malformed, `error` says so.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from zinc_rt.serve.formats.format import Format, Headers, MalformedCall, Mark, Part, ToolCall, Tools, text_of
from zinc_rt.serve.formats.json_calls import ObjectScanner

LONGEST_BEGIN = 64  # parts of a call in which its arguments must begin, to be streamed


class MarkScanner:
    """Split text that arrives in pieces at markers. No marker may be the prefix of another."""

    def __init__(self, marks: Iterable[str]) -> None:
        self._marks = tuple(marks)
        self._held = ""  # the longest end so far that a mark could begin with

    def feed(self, text: str) -> list[Part]:
        """Return the text that can no longer be part of a marker."""
        text = self._held + text
        parts: list[Part] = []
        while positions := [(index, mark) for mark in self._marks if (index := text.find(mark)) >= 0]:
            index, mark = min(positions)
            parts += [text[:index]] * (index > 0)
            parts.append(Mark(mark))
            text = text[index + len(mark) :]
        certain = len(text) - self._undecided(text)
        self._held = text[certain:]
        return parts + [text[:certain]] * (certain > 0)

    def flush(self) -> str:
        """Return the buffered text when no more text follows."""
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        longest = max(map(len, self._marks), default=1) - 1
        ends = range(min(longest, len(text)), 0, -1)
        return next((n for n in ends if any(mark.startswith(text[-n:]) for mark in self._marks)), 0)


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the `index`-th call. The id and name are only in the first piece; the arguments are the
    concatenation of all pieces."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A new piece: exactly one of the three fields."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[CallDelta, ...] = ()


class _Place(Enum):
    CONTENT = auto()
    REASONING = auto()
    CALL = auto()
    HEADER = auto()


class AnswerParser:
    """A parser of one answer. `calls`: the number of calls; `error`: why text that looked like a call is not
    valid."""

    def __init__(
        self,
        format: Format,
        *,
        tools: Tools | None = None,
        prompt: str = "",
        special: Container[str] = (),
        one_call: bool = False,
        stream_calls: bool = False,
    ) -> None:
        """Create a parser. Without `tools`, call markers are text. `prompt`: its end decides whether the
        answer begins with reasoning. `special`: markers that arrive only through `mark`, because they are
        special tokens. `one_call`: drop everything after the first call. `stream_calls`: see above."""
        self.calls = 0
        self.error: str | None = None
        self._format = format
        self._one_call = one_call
        self._tools = tools or {}
        self._scanner = MarkScanner(mark for mark in format.marks if mark not in special)
        self._place = _Place.CONTENT
        self._made: list[Delta] = []
        self._call: list[Part] = []  # the inside of the call that is being made
        self._stream_calls = stream_calls
        self._arguments: ObjectScanner | None = None  # of this call, if they are being delivered
        self._call_mark = ""  # what it began with
        self._before_call = ""  # white space in front of that
        self._title = ""  # of reasoning, still to come
        self._titled = ""  # what came of it
        self._leading = False  # white space is dropped until text comes
        self._trailing = ""  # white space that is dropped where no text comes behind it
        self._began = False  # content or a mark was there
        self._header = ""  # of the message that begins
        if format.headers is not None:
            self._header, begun = format.headers.find_open_header(prompt)
            if begun:
                self._begin_message(format.headers)
            else:
                self._place, self._header = _Place.HEADER, ""
        if format.opens_reasoning(prompt):
            self._enter(_Place.REASONING)

    def feed(self, text: str) -> list[Delta]:
        """Parse more text."""
        for part in self._scanner.feed(text):
            self._take(part)
        return self._taken()

    def mark(self, text: str) -> list[Delta]:
        """Process the special token of a marker."""
        self._text(self._scanner.flush())
        self._mark(text)
        return self._taken()

    def close(self, *, cut: bool = False) -> list[Delta]:
        """End the answer. `cut`: a limit ended it, so an incomplete call is not an error; it is dropped,
        neither call nor content."""
        self._text(self._scanner.flush())
        if self._place is _Place.CALL:
            self._end_call("", cut=cut)
        elif self._place is _Place.REASONING and self._titled:
            self._skip_title()
        if self._trailing:
            self._deliver(self._trailing)
            self._trailing = ""
        return self._taken()

    # --- parts

    def _take(self, part: Part) -> None:
        if isinstance(part, Mark):
            self._mark(part.text)
        else:
            self._text(part)

    def _mark(self, mark: str) -> None:
        if self._format.headers is not None:
            self._mark_message(self._format.headers, mark)
            return
        open, close = self._format.reasoning or ("", "")
        call, end = (self._format.call or ("", "")) if self._tools else ("", "")
        location = self._place
        if location is _Place.CALL:
            if mark == end or (not end and mark == call):
                self._end_call(mark if mark == end else "")
                if mark == call:
                    self._begin_call(mark)
            else:
                self._add_to_call(Mark(mark))
        elif location is _Place.REASONING and mark == close:
            self._enter(_Place.CONTENT)
        elif location is _Place.CONTENT and mark == open:
            self._enter(_Place.REASONING)
        elif mark == call and (location is _Place.CONTENT or self._format.call_ends_reasoning):
            self._begin_call(mark)
        else:
            self._text(mark)
        self._began = True

    def _mark_message(self, headers: Headers, mark: str) -> None:
        if mark in (*headers.opens, *headers.ends):
            self._end_message(mark)
            if mark in headers.opens:
                if self._place is not _Place.HEADER:
                    self._enter(_Place.HEADER)
                    self._header = ""
                self._header += mark
        elif mark == headers.begins and self._place is _Place.HEADER:
            self._begin_message(headers)
        elif self._place is _Place.HEADER:
            self._header += mark
        else:
            self._text(mark)
        self._began = True

    def _begin_message(self, headers: Headers) -> None:
        header, kind = self._header, headers.kind(self._header)
        if kind == "call" and self._tools:
            self._begin_call(header + headers.begins)
            return
        self._enter(_Place.REASONING if kind == "reasoning" else _Place.CONTENT)
        if kind == "call":
            self._text(header + headers.begins)

    def _end_message(self, mark: str) -> None:
        if self._place is _Place.CALL:
            self._end_call(mark)
        elif self._place is not _Place.HEADER:
            self._enter(_Place.CONTENT)

    def _leave_header(self, text: str) -> None:
        """Add to a header; without any marker it must begin as a recipient, or it is content."""
        assert self._format.headers is not None
        self._header += text
        begins, recipient = self._header.lstrip(), self._format.headers.recipient
        marked = any(mark in self._header for mark in self._format.headers.opens)
        if not (marked or begins.startswith(recipient) or recipient.startswith(begins)):
            self._enter(_Place.CONTENT)
            self._text(self._header)

    def _text(self, text: str) -> None:
        if not text:
            return
        if self._place is _Place.HEADER:
            self._leave_header(text)
            return
        if self._place is _Place.CALL:
            self._add_to_call(text)
            return
        if self._place is _Place.REASONING and self._title:
            self._titled += text
            if not (len(self._titled) < len(self._title) and self._title.startswith(self._titled)):
                self._skip_title()
            return
        if self._leading:
            text = text.lstrip()
            if not text:
                return
            self._leading = False
        text = self._trailing + text
        kept = text.rstrip()
        self._trailing = text[len(kept) :]
        if self._format.bare and self._tools and not self._began and kept.lstrip().startswith("{"):
            self._trailing = ""
            self._begin_call("")
            self._add_to_call(text)
            return
        if kept:
            self._deliver(kept)

    def _skip_title(self) -> None:
        """Return whether the title of the reasoning is complete or can no longer occur."""
        text, title, self._titled, self._title = self._titled, self._title, "", ""
        self._text(text.removeprefix(title))

    def _enter(self, place: _Place) -> None:
        if self._titled:
            self._skip_title()
        self._place = place
        self._leading, self._trailing = True, ""
        self._title = self._format.reasoning_title if place is _Place.REASONING else ""

    # --- calls

    def _begin_call(self, mark: str) -> None:
        before = self._trailing if self._place is _Place.CONTENT else ""
        self._enter(_Place.CALL)
        self._call, self._call_mark, self._before_call = [], mark, before

    def _add_to_call(self, part: Part) -> None:
        """Add to the call, and deliver what is known of its arguments."""
        self._call.append(part)
        if self._arguments is not None:
            self._deliver_arguments(text_of([part]))
        elif self._stream_calls and not self._done and len(self._call) <= LONGEST_BEGIN:
            parts = self._call_parts()
            begin = self._format.find_arguments(parts)
            if begin is not None and begin.name in self._tools:
                delta = CallDelta(self.calls, self._format.call_id(), begin.name)
                self._made.append(Delta(tool_calls=(delta,)))
                self._arguments = ObjectScanner()
                self._deliver_arguments(text_of(parts)[begin.at :])

    def _call_parts(self) -> list[Part]:
        header: list[Part] = [Mark(self._call_mark)] if self._format.headers else []
        return [*header, *self._call]

    def _deliver_arguments(self, text: str) -> None:
        assert self._arguments is not None
        if arguments := self._arguments.feed(text):
            self._made.append(Delta(tool_calls=(CallDelta(self.calls, arguments=arguments),)))

    def _end_call(self, mark: str, *, cut: bool = False) -> None:
        inside, parts, self._call = self._call, self._call_parts(), []
        streamed, self._arguments = self._arguments is not None, None
        self._enter(_Place.CONTENT)
        try:
            calls = self._format.read(parts, self._tools)
        except MalformedCall as error:
            if streamed:
                self.calls += 1
                self.error = "the answer was cut inside a tool call" if cut else str(error)
                return
            if cut and (self._call_mark or any(f'"{name}"' in text_of(inside) for name in self._tools)):
                self.error = "the answer was cut inside a tool call"
                return
            if self._call_mark:
                self.error = str(error)
            self._deliver(f"{self._before_call}{self._call_mark}{text_of(inside)}{mark}")
            return
        self.calls += streamed
        for call in calls[streamed:]:
            self._finish_call(call)

    def _finish_call(self, call: ToolCall) -> None:
        if self._done:
            return
        index, self.calls = self.calls, self.calls + 1
        self._made.append(Delta(tool_calls=(CallDelta(index, self._format.call_id(), call.name),)))
        self._made.append(Delta(tool_calls=(CallDelta(index, arguments=call.arguments),)))

    # --- what is made of it

    @property
    def _done(self) -> bool:
        return self._one_call and self.calls > 0

    def _deliver(self, text: str) -> None:
        if self._done:
            return
        self._began = True
        reasoning = self._place is _Place.REASONING
        self._made.append(Delta(reasoning_content=text) if reasoning else Delta(text))

    def _taken(self) -> list[Delta]:
        deltas, self._made = self._made, []
        return deltas
