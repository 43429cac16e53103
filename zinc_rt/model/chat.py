"""Chat templates: convert messages to a prompt with the model's Jinja template."""

from __future__ import annotations

import functools
import json
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from zinc_rt.host.errors import InputError
from zinc_rt.model.tokenizer import Tokenizer

MAX_TEMPLATE_CHARS = 1 << 20
MAX_OUTPUT_CHARS = 1 << 24
MAX_VALUE_CHARS = 1 << 22  # any text or list that the template builds
MAX_STEPS = 200_000  # loop iterations, macro calls and filters together
MAX_CPU_SECONDS = 10.0
MAX_INTEGER_BITS = 256
MAX_NUMBER_ARGUMENT = 1_000_000  # widths, counts, repetitions

_LONG_WIDTH = re.compile(r"\d{6}|\*")  # a field width in a format text
_NO_TEMPLATE = "use --prompt without --chat, or use a chat model"


def find_chat_template(metadata: Mapping[str, object], *, name: str | None = None) -> str:
    """Return the template text in GGUF metadata, `name` for one of several. Raise InputError if there is none."""
    key = "tokenizer.chat_template" + (f".{name}" if name else "")
    template = metadata.get(key)
    if template is None or template == "":
        raise InputError(f"the file has no chat template ({key})", next=_NO_TEMPLATE)
    if not isinstance(template, str):
        raise InputError(f"{key}: expected a string, got {type(template).__name__}", next=_NO_TEMPLATE)
    return template


def render_chat(
    template: str | None,
    messages: Sequence[Mapping[str, Any]],
    *,
    bos_text: str = "",
    eos_text: str = "",
    add_generation_prompt: bool = True,
    now: datetime | None = None,
    **variables: Any,
) -> str:
    """Render the prompt for `messages` ({"role": ..., "content": ...}), to be encoded with special tokens parsed.

    Most templates write `bos_text` themselves: encode with `add_special=False` if the prompt starts with it. `now`
    is the time for `strftime_now`. `variables` are passed to the template unchanged (tools, enable_thinking, ...).
    Raise InputError, with the template's line, for any error in it.
    """
    if not template:
        raise InputError("this model has no chat template", next=_NO_TEMPLATE)
    if len(template) > MAX_TEMPLATE_CHARS:
        raise InputError(
            f"the chat template has {len(template)} characters, more than {MAX_TEMPLATE_CHARS}", next=_NO_TEMPLATE
        )
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(
                f"message {index}: expected a mapping with a string 'role', got {message!r:.80}",
                next='write messages as {"role": "user", "content": "..."}',
            )
    environment = _Environment(now)
    argument = {
        **variables,
        "messages": list(messages),
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos_text,
        "eos_token": eos_text,
    }
    try:
        out: list[str] = []
        room = MAX_OUTPUT_CHARS
        for part in environment.from_string(template).generate(argument):
            room -= len(part)
            if room < 0:
                raise _LimitExceeded(f"the template outputs more than {MAX_OUTPUT_CHARS} characters")
            out.append(part)
    except Exception as error:  # expressions in a template can raise any exception
        raise InputError(
            f"chat template{_format_line(error)}: {_format_reason(error)}", next=_make_advice(error)
        ) from None
    return "".join(out)


def make_chat_prompt(
    tokenizer: Tokenizer,
    template: str | None,
    messages: Sequence[Mapping[str, Any]],
    *,
    marks: Iterable[str] = (),
    continued: bool = False,
    **variables: Any,
) -> tuple[str, list[int]]:
    """Render a conversation and tokenize it. Return the text and the tokens. See `render_chat`.

    Only the template's own text can contain control tokens. Their texts in messages and variables stay text, so
    that nobody can end a message, or begin one of another role, from inside it. The same applies to `marks`, texts
    with a meaning in the model's format, except in texts of the assistant, which has written them itself.
    `continued`: the prompt ends inside the last message, so that the model continues it. Raise InputError if that
    cannot be done.
    """
    bos, eos = ("" if id is None else tokenizer.token_text(id) for id in (tokenizer.bos_id, tokenizer.eos_id))
    separator = _find_unused_character((messages, variables))
    own, everywhere = _make_literals(tokenizer.control_texts, frozenset(marks))
    messages = [_separate_message(message, own, everywhere, separator) for message in messages]
    variables = everywhere.separate(variables, separator)
    if continued:
        variables["add_generation_prompt"] = False
    text = render_chat(template, messages, bos_text=bos, eos_text=eos, **variables)
    if continued:
        text = _cut_after_last_message(text, messages)
    add_special = not (bos and text.startswith(bos))
    tokens = tokenizer.encode(text, add_special=add_special, ignored=separator)
    return text.replace(separator, ""), tokens


def make_rank_prompt(tokenizer: Tokenizer, template: object, query: str, document: str) -> list[int]:
    """Return the tokens of a query and a document for a reranker.

    `template`: the file's template named "rerank", in which {query} and {document} are replaced. None: BOS, the
    query, EOS, SEP, the document, EOS, each if the tokenizer adds it. Control tokens in the texts stay text. Raise
    InputError for a template without both. Facts: llama.cpp tools/server/server-common.cpp, format_prompt_rerank.
    """
    if template is None:
        bos, eos, sep = (
            [id] if id is not None and added else []
            for id, added in (
                (tokenizer.bos_id, tokenizer.add_bos),
                (tokenizer.sep_id if tokenizer.eos_id is None else tokenizer.eos_id, tokenizer.add_eos),
                (tokenizer.sep_id, tokenizer.add_sep),
            )
        )
        first, second = (
            tokenizer.encode(text, add_special=False, parse_special=False) for text in (query, document)
        )
        return [*bos, *first, *eos, *sep, *second, *eos]
    if not isinstance(template, str) or "{query}" not in template or "{document}" not in template:
        raise InputError(
            "tokenizer.chat_template.rerank has no {query} and {document}",
            next="convert the reranker again with a current llama.cpp converter",
        )
    separator = _find_unused_character((query, document))
    _, literal = _make_literals(tokenizer.control_texts, frozenset())
    texts = {"{query}": literal.separate(query, separator), "{document}": literal.separate(document, separator)}
    text = re.sub("{query}|{document}", lambda match: texts[match[0]], template)
    return tokenizer.encode(text, add_special=False, ignored=separator)


def _cut_after_last_message(text: str, messages: Sequence[Mapping[str, Any]]) -> str:
    content = messages[-1].get("content") if messages else None
    last = content.rstrip() if isinstance(content, str) else ""
    if not last or (start := text.rfind(last)) < 0:
        raise InputError(
            "the last message cannot be continued: the template does not write its text as it is",
            next="let the last message have a text, and use a template that does not change it",
        )
    assert isinstance(content, str)
    end = start + len(last)
    kept = content[len(last) :]
    return text[:end] + (kept if text[end:].startswith(kept) else "")


def _find_unused_character(value: Any) -> str:
    """Return a noncharacter of Unicode that occurs in no text of a nested value."""
    text = "".join(_list_texts(value))
    unused = (character for character in map(chr, range(0xFDD0, 0xFDF0)) if character not in text)
    if (found := next(unused, None)) is None:
        raise InputError(
            "the messages contain all of Unicode's noncharacters, U+FDD0 to U+FDEF",
            next="remove them: they are not for the exchange of text",
        )
    return found


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _list_texts(key)
            yield from _list_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_texts(item)


@functools.lru_cache(maxsize=16)
def _make_literals(control_texts: frozenset[str], marks: frozenset[str]) -> tuple[_Literals, _Literals]:
    """Return what stays text in texts of the assistant, and what everywhere else. It may be thousands of texts."""
    return _Literals(control_texts - marks), _Literals(control_texts | marks)


def _separate_message(message: Any, own: _Literals, everywhere: _Literals, character: str) -> Any:
    """Return a message with its texts changed. `own`: for what the assistant has written."""
    if not isinstance(message, Mapping):
        return message  # `render_chat` rejects it
    by_assistant = ("content", "reasoning_content", "thinking") if message.get("role") == "assistant" else ()
    return {
        name: value if name == "role" else (own if name in by_assistant else everywhere).separate(value, character)
        for name, value in message.items()
    }


class _Literals:
    """Texts of tokens that stay text: a character is written into each occurrence, after its first letter."""

    def __init__(self, texts: Set[str]) -> None:
        self._texts = texts
        self._lengths: dict[str, list[int]] = {}
        for first, length in sorted({(text[0], len(text)) for text in texts if len(text) > 1}):
            self._lengths.setdefault(first, []).append(length)
        firsts = "".join(map(re.escape, self._lengths))
        self._start = re.compile(f"[{firsts}]") if firsts else None

    def separate(self, value: Any, character: str) -> Any:
        """Return a nested value with its texts changed, the names in mappings too."""
        if isinstance(value, str):
            return self._separate_text(value, character)
        if isinstance(value, Mapping):
            return {self.separate(key, character): self.separate(item, character) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.separate(item, character) for item in value]
        return value

    def _separate_text(self, text: str, character: str) -> str:
        if self._start is None:
            return text
        starts = [match.end() for match in self._start.finditer(text) if self._begins_at(text, match.start())]
        bounds = zip([0, *starts], [*starts, len(text)], strict=True)
        return character.join(text[start:end] for start, end in bounds)

    def _begins_at(self, text: str, start: int) -> bool:
        return any(text[start : start + length] in self._texts for length in self._lengths[text[start]])


class _LimitExceeded(jinja2.TemplateError):
    """Raised if a budget is exhausted."""


class _RejectedTemplate(jinja2.TemplateError):
    """Raised if the template calls raise_exception."""


def _format_line(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f", line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return f", line {frames[-1].lineno}" if frames else ""


def _format_reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it nests or recurses too deeply"
    if isinstance(error, jinja2.TemplateError):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}"


def _make_advice(error: Exception) -> str:
    if isinstance(error, _RejectedTemplate):
        return "change the messages as the template requires, or use --prompt without --chat"
    return "use --prompt without --chat, or use another template"


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with Hugging Face's additions and a budget, for a single rendering."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: datetime | None) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation], cache_size=0
        )
        self._steps_left = MAX_STEPS
        self._stop_at = time.thread_time() + MAX_CPU_SECONDS
        self.filters = {name: self._guard_call(name, call) for name, call in self.filters.items()} | {
            "tojson": _to_json
        }
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda format: (now or datetime.now()).strftime(format)
        self.globals["_step"] = self._step
        self.globals["_concat"] = _join_texts
        self.globals.pop("lipsum", None)

    def _step(self) -> str:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _LimitExceeded(
                f"the template executes more than {MAX_STEPS} loop iterations, macro calls and filters"
            )
        if time.thread_time() > self._stop_at:
            raise _LimitExceeded(f"the template runs for more than {MAX_CPU_SECONDS:g} s")
        return ""

    def _guard_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        index = 1 if hasattr(call, "jinja_pass_arg") else 0  # position of the filtered value

        @functools.wraps(call)
        def run_guarded(*args: Any, **kwargs: Any) -> Any:
            self._step()
            _check_numbers(args, kwargs)
            before, value, after = args[:index], args[index], args[index + 1 :]
            if name == "join" and not isinstance(value, str):
                value = list(value)
                separator = str(kwargs.get("d", after[0] if after else ""))
                _check_length(
                    sum(len(item) for item in value if isinstance(item, str)) + len(value) * len(separator)
                )
            if isinstance(value, str):
                _check_text_method(name, value, after, kwargs)
            return call(*before, value, *after, **kwargs)

        return run_guarded

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Budget().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _check_numbers(args, kwargs)
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        if isinstance(owner := getattr(method, "__self__", None), str):
            _check_text_method(method.__name__, owner, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)


class _Budget(NodeTransformer):
    """A syntax tree transformer that makes loops and macros count their iterations, and '~' check its length."""

    def _count_iterations(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        step = nodes.Call(nodes.Name("_step", "load"), [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node

    visit_For = _count_iterations
    visit_Macro = _count_iterations

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name("_concat", "load"), node.nodes, [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """The tag {% generation %} ... {% endgeneration %}, which marks the assistant's part for training. Here it
    emits its content unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> None:
    raise _RejectedTemplate(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    _check_numbers((indent,), {})
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _join_texts(*parts: Any) -> str:
    texts = [str(part) for part in parts]
    _check_length(sum(map(len, texts)))
    return "".join(texts)


def _check_length(count: int) -> None:
    if count > MAX_VALUE_CHARS:
        raise _LimitExceeded(f"the template creates a value of {count} elements, more than {MAX_VALUE_CHARS}")


def _check_numbers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and abs(value) > MAX_NUMBER_ARGUMENT:
            raise _LimitExceeded(f"the template passes the number {value}, which exceeds {MAX_NUMBER_ARGUMENT}")


def _check_text_method(name: str, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    argument = [*args, *kwargs.values()]
    if name == "replace" and len(argument) >= 2 and isinstance(argument[0], str) and isinstance(argument[1], str):
        _check_length(len(text) + text.count(argument[0]) * len(argument[1]))
    if name == "join" and argument and isinstance(argument[0], list | tuple | str):
        _check_length(len(text) * len(argument[0]))
    if name in ("format", "format_map") and _LONG_WIDTH.search(text):
        raise _LimitExceeded("the template uses a very large or computed format width")


def _check_operation(operator: str, left: Any, right: Any) -> None:
    if operator == "%" and isinstance(left, str) and _LONG_WIDTH.search(left):
        raise _LimitExceeded("the template uses a very large or computed format width")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if operator == "**" and bits * max(right, 0) > MAX_INTEGER_BITS:
            raise _LimitExceeded(f"the template computes a number of more than {MAX_INTEGER_BITS} bits")
        if operator == "*" and bits + right.bit_length() > MAX_INTEGER_BITS:
            raise _LimitExceeded(f"the template computes a number of more than {MAX_INTEGER_BITS} bits")
    if operator == "*":
        for item, other in ((left, right), (right, left)):
            if isinstance(item, int) and isinstance(other, str | list | tuple):
                _check_length(item * len(other))
    if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        _check_length(len(left) + len(right))
