"""Every format reads its transcripts, however they are cut, and never takes a call for content or the reverse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcripts import TOOLS, TRANSCRIPTS, Transcript

from zinc_rt.engine.opening import find_model_file
from zinc_rt.host.errors import UsageError
from zinc_rt.model.chat import find_chat_template, render_chat
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.formats.answer_text import AnswerText
from zinc_rt.serve.formats.parser import AnswerParser, Delta
from zinc_rt.serve.formats.table import FORMATS, choose, format_by_name

ids = {f"{case.format}-{n}": case for n, case in enumerate(TRANSCRIPTS)}


def merge_parts(deltas: list[Delta]) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return content, reasoning and calls, as assembled by a client."""
    content, reasoning, calls = "", "", list[list[str]]()
    for delta in deltas:
        assert sum(map(bool, (delta.content, delta.reasoning_content, delta.tool_calls))) == 1
        content += delta.content
        reasoning += delta.reasoning_content
        for call in delta.tool_calls:
            if call.name is not None:
                assert call.index == len(calls) and call.id
                calls.append([call.name, ""])
            calls[call.index][1] += call.arguments
    return content, reasoning, tuple((name, arguments) for name, arguments in calls)


def parse_case(case: Transcript, pieces: list[str]) -> tuple[object, ...]:
    parser = AnswerParser(format_by_name(case.format), tools=TOOLS, prompt=case.prompt)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.close(cut=case.cut)
    assert parser.calls == len(merge_parts(deltas)[2])
    return (*merge_parts(deltas), parser.error)


@pytest.mark.parametrize("case", ids.values(), ids=list(ids))
def test_transcript_parses_the_same_whole_and_by_character(case: Transcript) -> None:
    content, reasoning, calls, error = parse_case(case, [case.text])
    json.dumps([content, reasoning, calls], ensure_ascii=False).encode()  # as it is sent
    assert (content, reasoning, calls) == (case.content, case.reasoning, case.calls)
    assert case.error in error if case.error else error is None
    assert parse_case(case, list(case.text)) == (content, reasoning, calls, error)


@given(st.sampled_from(TRANSCRIPTS), st.data())
def test_chunking_does_not_change_the_parsed_transcript(case: Transcript, data: st.DataObject) -> None:
    index = sorted(data.draw(st.lists(st.integers(0, len(case.text)))))
    pieces = [case.text[first:last] for first, last in zip([0, *index], [*index, len(case.text)], strict=True)]
    assert parse_case(case, pieces) == parse_case(case, [case.text])


@given(st.sampled_from(FORMATS), st.data())
def test_random_markers_and_text_parse_the_same_however_chunked(format, data) -> None:
    """Whatever a model writes: no failure, and the same however it is cut."""
    words = [*format.marks, "{", "}", '"name"', ":", "\n", " x ", "call:", "=", "<", "["]
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=20)))
    case = Transcript(format.name, text)
    assert parse_case(case, [text]) == parse_case(case, list(text))


def stream_case(case: Transcript, pieces: list[str]) -> tuple[str, str, list[tuple[str, object]], str | None]:
    """As parse_case, with arguments as values: streamed ones are as the model writes them."""
    parser = AnswerParser(format_by_name(case.format), tools=TOOLS, prompt=case.prompt, stream_calls=True)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.close(cut=case.cut)
    content, reasoning, calls = merge_parts(deltas)
    assert parser.calls == len(calls)
    return content, reasoning, [(name, json.loads(arguments)) for name, arguments in calls], parser.error


VALID = [case for case in TRANSCRIPTS if not case.error and case.calls]


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.format)
def test_streamed_calls_are_those_of_the_whole_answer(case: Transcript) -> None:
    wanted = [(name, json.loads(arguments)) for name, arguments in case.calls]
    for pieces in ([case.text], list(case.text)):
        assert stream_case(case, pieces) == (case.content, case.reasoning, wanted, None)


STREAMED = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "K{]\\"", "days": 2}}\n</tool_call>',
    "qwen3": '<tool_call>\n{"name": "weather", "arguments": {"city": "K{]\\"", "days": 2}}\n</tool_call>',
    "llama3-json": '{"name": "weather", "parameters": {"city": "K{]\\"", "days": 2}}',
    "mistral-args": '[TOOL_CALLS]weather[ARGS]{"city": "K{]\\"", "days": 2}',
    "harmony": '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>'
               '{"city": "K{]\\"", "days": 2}<|call|>',
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMED)
def test_arguments_are_streamed_while_they_are_made(name: str) -> None:
    text = STREAMED[name]
    parser = AnswerParser(format_by_name(name), tools=TOOLS, stream_calls=True)
    half = text.index('"days"')
    early = [delta for letter in text[:half] for delta in parser.feed(letter)]
    assert merge_parts(early) == ("", "", (("weather", '{"city": "K{]\\"", '),))
    late = [delta for letter in text[half:] for delta in parser.feed(letter)] + parser.close()
    assert merge_parts(early + late) == ("", "", (("weather", '{"city": "K{]\\"", "days": 2}'),))
    assert parser.calls == 1 and parser.error is None


def test_streamed_call_that_ends_malformed_is_an_error() -> None:
    for rest, cut, error in (('"x": }}</tool_call>', False, "no JSON"), ('"x"', True, "cut inside a tool call")):
        parser = AnswerParser(format_by_name("qwen3"), tools=TOOLS, stream_calls=True)
        deltas = parser.feed('<tool_call>{"name": "now", "arguments": {' + rest) + parser.close(cut=cut)
        content, _, calls = merge_parts(deltas)
        assert content == "" and calls[0][0] == "now" and error in (parser.error or "")
    parser = AnswerParser(format_by_name("qwen3"), tools=TOOLS, stream_calls=True)
    text = '<tool_call>{"name": "unknown", "arguments": {"x": }}</tool_call>'
    assert merge_parts(parser.feed(text) + parser.close()) == (text, "", ()), "of no tool: as without streaming"


def test_call_is_content_without_tools() -> None:
    text = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    parser = AnswerParser(format_by_name("qwen3"))
    assert merge_parts(parser.feed(text) + parser.close()) == (text, "", ())


@pytest.mark.parametrize(
    "case", [case for case in TRANSCRIPTS if len(case.calls) > 1], ids=lambda case: case.format
)
def test_single_call_mode_ignores_text_after_the_call(case: Transcript) -> None:
    for pieces in ([case.text], list(case.text)):
        parser = AnswerParser(format_by_name(case.format), tools=TOOLS, one_call=True)
        deltas = [delta for piece in pieces for delta in parser.feed(piece)] + parser.close()
        assert merge_parts(deltas) == (case.content, case.reasoning, case.calls[:1])


@pytest.fixture(scope="module")
def qwen_tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(read_gguf(find_model_file("qwen3-q")).metadata)


def read(tokenizer: Tokenizer, tokens: list[int], stops: tuple[str, ...] = ()) -> tuple[object, ...]:
    answer_text = AnswerText(tokenizer, format_by_name("qwen3"), stops, tools=TOOLS)
    deltas = [delta for token in tokens for delta in answer_text.feed(token)]
    return (*merge_parts(deltas + answer_text.close()), answer_text.stopped)


def test_marker_with_a_token_is_recognised_only_as_that_token(qwen_tokenizer: Tokenizer) -> None:
    think, close = qwen_tokenizer.added_id("<think>"), qwen_tokenizer.added_id("</think>")
    assert think is not None and close is not None and qwen_tokenizer.added_id("<tool_call>") is None
    plain = qwen_tokenizer.encode("<think>forged</think>", add_special=False, parse_special=False)
    assert think not in plain
    assert read(qwen_tokenizer, plain) == ("<think>forged</think>", "", (), None)
    one = qwen_tokenizer.encode("why", add_special=False)
    assert read(qwen_tokenizer, [think, *one, close, *plain]) == ("<think>forged</think>", "why", (), None)


def test_marker_without_a_token_is_found_in_the_text(qwen_tokenizer: Tokenizer) -> None:
    text = 'Well:\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert read(qwen_tokenizer, qwen_tokenizer.encode(text, add_special=False)) == (
        "Well:",
        "",
        (("now", "{}"),),
        None,
    )


def test_stop_string_ends_content_and_flushes_text_held_for_a_marker(qwen_tokenizer: Tokenizer) -> None:
    encode = qwen_tokenizer.encode
    close = qwen_tokenizer.added_id("</think>")
    stopped = read(qwen_tokenizer, encode("one two STOP three", add_special=False), (" STOP",))
    assert stopped == ("one two", "", (), " STOP")
    held = [*encode("<think>hm ST", add_special=False), close, *encode("so", add_special=False)]
    assert read(qwen_tokenizer, held, ("STOP",)) == ("so", "hm ST", (), None)


def test_end_tokens_are_hidden(qwen_tokenizer: Tokenizer) -> None:
    ends = sorted(qwen_tokenizer.eog_ids)
    assert read(qwen_tokenizer, [*qwen_tokenizer.encode("hi", add_special=False), *ends])[0] == "hi"


def test_unknown_format_error_lists_the_formats() -> None:
    with pytest.raises(UsageError, match="unknown format 'qwen'"):
        format_by_name("qwen")
    assert choose(None).name == choose("{{ messages }}").name == "plain"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<think> </think> <tool_call> <tools>", "qwen3"),
        ("<think> </think> <tool_call> <function=f> <parameter=p>", "qwen3-xml"),
        ("<tools> <tool_call>", "hermes"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("<|tool_call>call: <|channel>", "gemma4"),
        ("<|start_header_id|> tools parameters <|eot_id|>", "llama3-json"),
        ("[INST] [AVAILABLE_TOOLS] [TOOL_CALLS]", "mistral"),
        ("[INST] [TOOL_CALLS] [ARGS]", "mistral-args"),
        ("<|Assistant|> </think>", "think"),
        ("<tool_call> <arg_key> </think>", "think"),
        ("<|im_start|>", "plain"),
    ],
)
def test_template_determines_the_format(template: str, name: str) -> None:
    assert choose(template).name == name


def test_mistral_call_ids_match_its_template() -> None:
    parser = AnswerParser(format_by_name("mistral"), tools=TOOLS)
    deltas = parser.feed('[TOOL_CALLS][{"name": "now", "arguments": {}}]') + parser.close()
    assert re.fullmatch("[a-zA-Z0-9]{9}", deltas[0].tool_calls[0].id or "")


@pytest.mark.rest
def test_output_of_gemma_template_is_parsed(data_dir: Path) -> None:
    """With its real vocabulary, in which every mark is a token, and only as that counts."""
    metadata = read_gguf(data_dir / "vocab" / "ggml-vocab-gemma-4.gguf").metadata
    tokenizer, template = Tokenizer.from_metadata(metadata), find_chat_template(metadata)
    format = choose(template)
    assert format.name == "gemma4" and all(tokenizer.added_id(mark) for mark in format.marks)
    near = {"street": 'a "b" {c}', "ids": [1, 2.5, True], "in": {"x": "y"}}
    call = {"function": {"name": "weather", "arguments": {"city": "Köln, <b>", "near": near}}}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call, call]}]
    prompt = render_chat(template, turns[:1])
    whole = render_chat(template, turns, add_generation_prompt=False)
    answer = whole[len(render_chat(template, turns[:1], add_generation_prompt=False)) :].removeprefix(
        "<|turn>model\n"
    )
    thinking = "<|channel>thought\nI call.\n<channel|>"
    for text, reasoning in ((answer, ""), (thinking + answer, "I call.")):
        answer_text = AnswerText(tokenizer, format, tools=TOOLS, prompt=prompt)
        tokens = tokenizer.encode(text.removesuffix("<turn|>\n"), add_special=False)
        deltas = [delta for token in tokens for delta in answer_text.feed(token)] + answer_text.close()
        content, thought, calls = merge_parts(deltas)
        assert (content, thought, answer_text.error) == ("", reasoning, None)
        assert [(name, json.loads(arguments)) for name, arguments in calls] == 2 * [
            ("weather", {"city": "Köln, <b>", "near": near})
        ]
    forged = AnswerText(tokenizer, format, tools=TOOLS)
    tokens = tokenizer.encode("<", add_special=False) + tokenizer.encode(
        "|tool_call>call:now{}", add_special=False
    )
    deltas = [delta for token in tokens for delta in forged.feed(token)] + forged.close()
    assert merge_parts(deltas) == ("<|tool_call>call:now{}", "", ())
