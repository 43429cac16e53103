"""Whatever is drawn, an answer follows its grammar; what cannot be compiled is told why."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from support import Counts

from zinc_rt import LLM, Sampling
from zinc_rt.engine.opening import find_model_file
from zinc_rt.engine.runner import Runner, StepHandle, StepOutput
from zinc_rt.exec import DeadlineMissed
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.answer_text import AnswerText
from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.parser import Delta
from zinc_rt.serve.formats.table import FORMATS, format_by_name, required_calls, strict_calls
from zinc_rt.serve.grammars.grammar import Grammar, GrammarCompiler
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec, find_requested_grammar

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "maximum": 150, "minimum": 0},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}  # fmt: skip
GBNF = 'root ::= item ("," item)*\nitem ::= "\\u00e9" [a-c]{1,3}\n'
MOVES = ["e4", "d4", "Nf3"]
WIDE = json.dumps({"properties": {f"k{n}": {"type": "string"} for n in range(20000)}})


def grammar_spec(kind: Any, value: object) -> GrammarSpec:
    return GrammarSpec(kind, value if isinstance(value, str) else json.dumps(value))


@pytest.fixture(scope="module", params=["qwen3-q", "gemma4-q", "sentencepiece"])
def grammar_compiler(request: pytest.FixtureRequest) -> GrammarCompiler:
    tokenizer = Tokenizer.from_metadata(read_gguf(find_model_file(request.param)).metadata)
    return GrammarCompiler(tokenizer, tokenizer.vocab_size, ("<think>", "</think>"))


@pytest.fixture(scope="module")
def served_compiler() -> Iterator[GrammarCompiler]:
    tokenizer = Tokenizer.from_metadata(read_gguf(find_model_file("qwen3-q")).metadata)
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    yield compiler
    compiler.close()


def allowed_tokens(grammar: Grammar) -> list[int]:
    bits = np.unpackbits(grammar.mask().view(np.uint8), bitorder="little")
    return [int(id) for id in np.flatnonzero(bits)]


def draw_tokens(grammar: Grammar, compiler: GrammarCompiler, seed: int, maximum: int) -> Iterator[int]:
    """Sample random tokens; an end token is used only if nothing else is allowed, and ends the answer."""
    random = np.random.default_rng(seed)
    for _ in range(maximum):
        if grammar.complete:
            break
        ids = [id for id in allowed_tokens(grammar) if id not in compiler.tokenizer.eog_ids]
        if not ids:
            break
        token = int(random.choice(ids))
        grammar.accept(token)
        assert grammar.failure == ""
        yield token


def draw_text(grammar: Grammar, compiler: GrammarCompiler, seed: int, maximum: int = 400) -> str:
    """The text of such an answer."""
    result = draw_tokens(grammar, compiler, seed, maximum)
    return b"".join(map(compiler.tokenizer.piece_bytes, result)).decode(
        errors="ignore"
    )  # cut at `most`, maybe inside a character


@pytest.mark.parametrize("seed", range(3))
def test_random_walk_produces_valid_schema_instances(grammar_compiler: GrammarCompiler, seed: int) -> None:
    person = json.loads(
        draw_text(grammar_compiler.compile(grammar_spec("json_schema", PERSON)), grammar_compiler, seed)
    )
    assert set(person) == {"name", "age"} and len(person["name"]) <= 12 and 0 <= person["age"] <= 150


def test_regex_choice_lark_and_gbnf_are_supported(grammar_compiler: GrammarCompiler) -> None:
    assert re.fullmatch(
        "[ab]{3,5}-x",
        draw_text(grammar_compiler.compile(grammar_spec("regex", "[ab]{3,5}-x")), grammar_compiler, 0),
    )
    assert draw_text(grammar_compiler.compile(grammar_spec("choice", MOVES)), grammar_compiler, 0) in MOVES
    assert (
        draw_text(
            grammar_compiler.compile(grammar_spec("lark", 'start: "[" /[0-9]{2}/ "]"')), grammar_compiler, 0
        )[0]
        == "["
    )
    result = draw_text(grammar_compiler.compile(grammar_spec("gbnf", GBNF)), grammar_compiler, 0, maximum=30)
    assert re.match("é[a-c]{1,3}(,é|$)", result), result


def test_end_tokens_are_allowed_only_when_the_grammar_accepts(grammar_compiler: GrammarCompiler) -> None:
    ends = grammar_compiler.tokenizer.eog_ids
    grammar = grammar_compiler.compile(grammar_spec("regex", "a+b"))
    assert not ends & set(allowed_tokens(grammar)) and not grammar.accepting
    for token in grammar_compiler.tokenizer.encode("ab", add_special=False, continues=True):
        grammar.accept(token)
    assert grammar.complete and grammar.accepting
    assert set(allowed_tokens(grammar)) <= set(ends)


def test_logits_beyond_the_vocabulary_are_never_allowed(grammar_compiler: GrammarCompiler) -> None:
    tokenizer = grammar_compiler.tokenizer
    for more in (1, 32, 77):
        padded = GrammarCompiler(tokenizer, tokenizer.vocab_size + more)
        assert json.loads(draw_text(padded.compile(grammar_spec("json_schema", PERSON)), padded, 2))
        assert max(allowed_tokens(padded.compile(grammar_spec("regex", "(?s:.*)")))) < tokenizer.vocab_size


def test_accepted_tokens_roll_back_and_forks_are_independent(grammar_compiler: GrammarCompiler) -> None:
    grammar = grammar_compiler.compile(grammar_spec("json_schema", PERSON))
    before = allowed_tokens(grammar)
    fork = grammar.fork()
    token = before[0]
    grammar.accept(token)
    assert allowed_tokens(fork) == before != allowed_tokens(grammar)
    grammar.rollback(1)
    assert allowed_tokens(grammar) == before
    assert json.loads(draw_text(fork, grammar_compiler, 5))


def test_grammar_can_start_after_reasoning(grammar_compiler: GrammarCompiler) -> None:
    encode, ends = grammar_compiler.tokenizer.encode, grammar_compiler.tokenizer.eog_ids
    grammar = grammar_compiler.compile(grammar_spec("choice", MOVES), after="</think>")
    assert not ends & set(allowed_tokens(grammar))  # an answer does not end in its reasoning
    for token in encode("well, </think", add_special=False, continues=True):
        grammar.accept(token)
        assert len(allowed_tokens(grammar)) > 400
    grammar.rollback(1)
    for token in encode(" then </think>", add_special=False, continues=True):
        grammar.accept(token)
    assert draw_text(grammar, grammar_compiler, 1) in MOVES


def test_answer_can_open_reasoning() -> None:
    tokenizer = Tokenizer.from_metadata(read_gguf(find_model_file("qwen3-q")).metadata)
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, ("<think>", "</think>"))
    think, close = tokenizer.added_id("<think>"), tokenizer.added_id("</think>")
    assert think is not None and close is not None
    grammar = compiler.compile(grammar_spec("choice", MOVES), after="</think>", opens="<think>")
    assert think in allowed_tokens(grammar)
    assert draw_text(grammar.fork(), compiler, 1).removeprefix("<think>")
    grammar.accept(think)
    grammar.accept(5)
    grammar.accept(close)
    assert think not in allowed_tokens(grammar) and draw_text(grammar, compiler, 1) in MOVES


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json_schema", '{"type": "objct"}', "objct"),
        ("json_schema", "{", "EOF"),
        ("json_schema", '{"$ref": "http://127.0.0.1:1/x"}', "not present"),
        ("json_schema", '{"items":' * 3000 + "{}" + "}" * 3000, "recursion"),
        ("json_schema", WIDE, "too large"),
        ("regex", "(", "regex"),
        ("regex", "(" * 100000, "regex"),
        ("regex", "a" * (1 << 20) + "b", "more than"),
        ("lark", "start: x", "unknown name"),
        ("gbnf", "root ::= " + "(" * 20000, ""),
        ("gbnf", 'rot ::= "a"', "root"),
        ("gbnf", "".join(f"r{n} ::= r{n + 1}\n" for n in range(600)), "600 rules"),
        ("gbnf", "root ::= " + '"a" ' * 20000, "more than"),
    ],
)  # fmt: skip
def test_grammar_bombs_and_errors_are_rejected_with_reason(
    served_compiler: GrammarCompiler, kind: Any, text: str, message: str
) -> None:
    with pytest.raises(ServeError) as refused:
        asyncio.run(served_compiler.compile_for_tenant(GrammarSpec(kind, text, "guided"), tenant="alice"))
    assert refused.value.status == 400 and refused.value.param == "guided"
    assert message in refused.value.message, refused.value.message


SLOW = {"type": "integer", "multipleOf": 999983}  # llguidance needs 10 s of CPU time for it


def test_slow_grammar_is_killed_while_another_tenant_compiles(served_compiler: GrammarCompiler) -> None:
    async def compile_both() -> list[object]:
        slow = served_compiler.compile_for_tenant(grammar_spec("json_schema", SLOW), tenant="mallory")
        fast = [
            served_compiler.compile_for_tenant(grammar_spec("regex", f"a{{{n}}}"), tenant="alice")
            for n in range(1, 4)
        ]
        tasks = [asyncio.ensure_future(call) for call in (slow, *fast)]
        ended = []
        for task in tasks:
            task.add_done_callback(ended.append)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert ended[-1] is tasks[0]
        return results

    killed, *grammars = asyncio.run(compile_both())
    assert isinstance(killed, ServeError) and "took more than 1 s of CPU time" in killed.message
    for grammar, count in zip(grammars, (1, 2, 3), strict=True):
        assert isinstance(grammar, Grammar)
        assert draw_text(grammar, served_compiler, 1) == "a" * count


def test_grammars_of_a_tenant_are_kept_for_that_tenant(
    served_compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[GrammarSpec] = []
    compile_grammar = GrammarCompiler.compile

    def count_compilation(compiler: GrammarCompiler, spec: GrammarSpec, **options: str) -> Grammar:
        compiled.append(spec)
        return compile_grammar(compiler, spec, **options)

    monkeypatch.setattr(GrammarCompiler, "compile", count_compilation)
    spec = grammar_spec("regex", "b[cd]e")

    async def compile_three_times() -> list[Grammar]:
        return [await served_compiler.compile_for_tenant(spec, tenant=name) for name in ("alice", "alice", "bob")]

    first, second, _ = asyncio.run(compile_three_times())
    assert compiled == [spec, spec]
    assert draw_text(first, served_compiler, 1) in ("bce", "bde")
    assert draw_text(second, served_compiler, 1) in ("bce", "bde")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}, "grammar": ""}, None),
        ({"response_format": {"type": "json_object"}}, "json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": PERSON}}}, "json_schema"),
        ({"guided_json": json.dumps(PERSON)}, "json_schema"),
        ({"guided_regex": "a+"}, "regex"),
        ({"guided_choice": MOVES}, "choice"),
        ({"guided_grammar": 'start: "a"'}, "lark"),
        ({"grammar": GBNF}, "gbnf"),
        ({"structured_outputs": {"regex": "a"}}, "regex"),
        ({"json_schema": PERSON}, "json_schema"),
    ],
)  # fmt: skip
def test_every_grammar_parameter_name_is_accepted(body: dict[str, Any], kind: str | None) -> None:
    asked = find_requested_grammar(body)
    assert (asked and asked.kind) == kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"response_format": {"type": "xml"}}, "expected 'text', 'json_object'"),
        ({"response_format": {"type": "json_schema"}}, "json_schema: expected"),
        ({"guided_choice": []}, "list of non-empty strings"),
        ({"guided_regex": 3}, "a string"),
        ({"guided_json": 3}, "JSON schema"),
        ({"structured_outputs": []}, "an object"),
        ({"guided_regex": "a", "grammar": GBNF}, "guided_regex and grammar"),
    ],
)
def test_malformed_grammar_parameter_is_rejected_by_name(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ServeError, match=message):
        find_requested_grammar(body)


# --- on a device

SHORT = r'\{"move": "(e4|d4|Nf3)", "n": [0-9]{1,3}\}'
SAMPLINGS = (Sampling(max_tokens=36), Sampling(max_tokens=36, temperature=1.0, seed=3, n=2, logit_bias={7: 5.0}))
FREE = Sampling(max_tokens=20, ignore_eos=True)


def generate_answers(model: str, tier: str, device: str = "auto") -> list[tuple[str, tuple[int, ...], str]]:
    """Answer two prompts, greedy and sampled, together with a request without a grammar."""
    with LLM(model, tier=tier, device=device, slots=4, ctx=96) as llm:
        assert llm.tokenizer is not None
        grammar = GrammarCompiler(llm.tokenizer, llm.engine.model.vocab).compile(grammar_spec("regex", SHORT))
        free = llm.submit([9, 8, 7], FREE)
        result = [
            item
            for sampling in SAMPLINGS
            for item in llm.generate([[5, 6, 7], [11, 12]], sampling, grammar=grammar)
        ]
        assert free.done
        assert tuple(free.answers[0].token_ids) == llm.generate([[9, 8, 7]], FREE)[0].token_ids
        return [(item.text, item.token_ids, item.finish_reason) for item in result]


@pytest.mark.rest
@pytest.mark.parametrize(("model", "slow"), [("qwen3-q", False), ("qwen35moe-q", True), ("gemma4-q", True)])
def test_random_weights_follow_a_grammar_on_every_tier(model: str, slow: bool, slow_counts: Counts) -> None:
    if slow and not slow_counts(0, 1):
        pytest.skip("the full run tries this model, too: --slow")
    result = generate_answers(model, "t_cpu")
    assert len(result) == 6
    for text, tokens, reason in result:
        assert reason == ("length" if len(tokens) == 36 else "stop")
        if reason == "stop":
            assert re.fullmatch(SHORT, text)
    assert any(reason == "stop" for _, _, reason in result)
    assert result == generate_answers(model, "t_cpu_native")
    if slow_counts(0, 1):
        assert result == generate_answers(model, "t1", "sim")


def test_grammar_failure_ends_only_its_request_with_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM("qwen3-q", tier="t_cpu", slots=2, ctx=64) as llm:
        assert llm.tokenizer is not None
        compiler = GrammarCompiler(llm.tokenizer, llm.engine.model.vocab)
        beside = llm.submit([9, 8, 7], FREE)
        grammar = compiler.compile(grammar_spec("regex", "[a-z]{30}"))
        monkeypatch.setattr("zinc_rt.serve.grammars.grammar.MASK_CPU_SECONDS", -1.0)
        assert llm.generate([[5, 6]], Sampling(), grammar=grammar)[0].finish_reason == "grammar_too_slow"
        monkeypatch.undo()
        one = compiler.compile(grammar_spec("regex", "a"))
        never = Sampling(
            min_tokens=2, stop_token_ids=tuple(allowed_tokens(one))
        )  # all it allows would end it too early
        assert llm.generate([[5, 6]], never, grammar=one)[0].finish_reason == "sampler_no_candidate"
        while not beside.done:
            llm.step()
        assert beside.answers[0].ended == "length"


def test_preempted_answer_resumes_in_its_grammar() -> None:
    with LLM("qwen3-q", tier="t_cpu_native", slots=2, ctx=96) as llm:
        assert llm.tokenizer is not None
        grammar = GrammarCompiler(llm.tokenizer, llm.engine.model.vocab).compile(grammar_spec("regex", SHORT))
        token_ids = llm.generate([[5, 6, 7]], SAMPLINGS[0], grammar=grammar)[0].token_ids
        asked, steps = llm.submit([5, 6, 7], SAMPLINGS[0], grammar=grammar), 0
        while not asked.done:
            llm.step()
            steps += 1
            for request in list(llm.scheduler.running()):
                if steps % 5 == 0:
                    llm.scheduler.evict(request)
                elif steps % 3 == 0:
                    llm.scheduler.park(request)
        assert tuple(asked.answers[0].token_ids) == token_ids


@pytest.mark.parametrize("failing_step", [3, 6])  # of a forward graph, of a sample graph
def test_failed_step_loses_no_grammar_token(failing_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM("qwen3-q", tier="t_cpu_native", slots=2, ctx=96) as llm:
        assert llm.tokenizer is not None
        grammar = GrammarCompiler(llm.tokenizer, llm.engine.model.vocab).compile(grammar_spec("regex", SHORT))
        token_ids = llm.generate([[5, 6, 7]], SAMPLINGS[0], grammar=grammar)[0].token_ids
        real, steps = Runner.collect, [0]

        def collect_late(self: Runner, handle: StepHandle, timeout_seconds: float | None = None) -> StepOutput:
            output = real(self, handle, timeout_seconds)
            steps[0] += 1
            if steps[0] == failing_step:
                raise DeadlineMissed("the step did not finish")
            return output

        monkeypatch.setattr(Runner, "collect", collect_late)
        assert llm.generate([[5, 6, 7]], SAMPLINGS[0], grammar=grammar)[0].token_ids == token_ids
        assert llm.scheduler.counts.failed_steps == 1


# --- calls that are demanded

PLACE = {"type": "object", "properties": {"street": {"type": "string"}, "of": {"$ref": "#/$defs/place"}}}
TOOLS: dict[str, Any] = {
    "weather": {
        "$defs": {"place": PLACE},
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 0, "maximum": 99},
            "units": {"enum": ["metric", "imperial"]},
            "exact": {"type": ["boolean", "null"]},
            "near": {"$ref": "#/$defs/place"},
            "places": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "boolean"}]}},
        },
        "required": ["city", "units"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
FAMILIES = [format for format in FORMATS if format.demand is not None]


@pytest.mark.parametrize("format", FAMILIES, ids=lambda format: format.name)
@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.rest(keep=5)
def test_required_call_can_be_parsed_by_its_format(
    grammar_compiler: GrammarCompiler, format: Format, seed: int
) -> None:
    tools = TOOLS if seed else {"now": TOOLS["now"]}
    tokenizer = grammar_compiler.tokenizer
    grammar = grammar_compiler.compile(required_calls(format, tokenizer, tools, many=seed > 2))
    tokens = list(draw_tokens(grammar, grammar_compiler, seed, 600))
    if not grammar.accepting:
        return  # a text that found no end
    answer_text = AnswerText(tokenizer, format, tools=TOOLS)
    deltas = [delta for token in tokens for delta in answer_text.feed(token)] + answer_text.close()
    assert answer_text.error is None and answer_text.calls >= 1
    assert "".join(delta.content for delta in deltas) == ""
    names = [call.name for delta in deltas for call in delta.tool_calls if call.name]
    for name, call in zip(names, arguments_of(deltas), strict=True):
        assert set(call) <= set(TOOLS[name]["properties"])
        if name == "weather":
            assert isinstance(call["city"], str) and call["units"] in ("metric", "imperial")
            assert isinstance(call.get("days", 0), int) and call.get("exact") in (None, True, False)


def arguments_of(deltas: list[Delta]) -> list[dict[str, Any]]:
    texts: list[str] = []
    for call in (call for delta in deltas for call in delta.tool_calls):
        texts += [""] * (call.index == len(texts))
        texts[call.index] += call.arguments
    return [json.loads(text) for text in texts]


def test_format_without_calls_rejects_required_calls(grammar_compiler: GrammarCompiler) -> None:
    with pytest.raises(ServeError, match="plain"):
        required_calls(format_by_name("plain"), grammar_compiler.tokenizer, TOOLS, many=True)


_JSON = '{"name": "weather", "arguments": {"city": "if a < b: </b>", "days": 2, "units": "metric"}}'
CANONICAL = {  # as the template of each family writes the call of an earlier turn
    "qwen3": f"<tool_call>\n{_JSON}\n</tool_call>",
    "hermes": f"<tool_call>\n{_JSON}\n</tool_call>",
    "mistral": f"[TOOL_CALLS][{_JSON}]",
    "mistral-args": '[TOOL_CALLS]weather[ARGS]{"city": "if a < b: </b>", "days": 2, "units": "metric"}',
    "llama3-json": _JSON.replace("arguments", "parameters"),
    "qwen3-xml": "<tool_call>\n<function=weather>\n<parameter=city>\nif a < b: </b>\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n<parameter=units>\nmetric\n</parameter>\n</function>\n</tool_call>",
    "gemma4": '<|tool_call>call:weather{city:<|"|>if a < b: </b><|"|>,days:2,units:<|"|>metric<|"|>}<tool_call|>',
    "harmony": "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "if a < b: </b>", "days": 2, "units": "metric"}',
}
TEXTS = {  # an answer of text, and a text before a call
    "harmony": (
        "<|channel|>final<|message|>Hello, <b>you</b>.",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("format", FAMILIES, ids=lambda format: format.name)
def test_canonical_call_is_accepted_by_its_grammar(grammar_compiler: GrammarCompiler, format: Format) -> None:
    tokenizer, text = grammar_compiler.tokenizer, CANONICAL[format.name]
    grammar = grammar_compiler.compile(required_calls(format, tokenizer, TOOLS, many=True))
    answer_text = AnswerText(tokenizer, format, tools=TOOLS)
    deltas: list[Delta] = []
    for token in tokenizer.encode(text, add_special=False, continues=True):
        grammar.accept(token)
        assert grammar.failure == ""
        deltas += answer_text.feed(token)
    assert grammar.accepting
    deltas += answer_text.close()
    assert arguments_of(deltas) == [{"city": "if a < b: </b>", "days": 2, "units": "metric"}]
    strange = text.replace("metric", "kelvin")
    assert not is_accepted(grammar_compiler, required_calls(format, tokenizer, TOOLS, many=True), strange)


def is_accepted(compiler: GrammarCompiler, spec: GrammarSpec, text: str) -> bool:
    """Return whether the grammar accepts a text."""
    grammar = compiler.compile(spec)
    for token in compiler.tokenizer.encode(text, add_special=False, continues=True):
        if not grammar.failure and not grammar.complete:
            grammar.accept(token)
    return grammar.accepting and not grammar.failure


@pytest.mark.rest(keep=9)
@pytest.mark.parametrize("format", FAMILIES, ids=lambda format: format.name)
def test_strict_tools_allow_free_text_and_constrain_every_call(
    grammar_compiler: GrammarCompiler, format: Format
) -> None:
    spec, call = strict_calls(format, grammar_compiler.tokenizer, TOOLS), CANONICAL[format.name]
    strange = call.replace("metric", "kelvin")
    text, before = TEXTS.get(format.name, ("Hello, <b>you</b>.", "I look.\n"))
    assert is_accepted(grammar_compiler, spec, text) and is_accepted(grammar_compiler, spec, call)
    assert not is_accepted(grammar_compiler, spec, strange)
    if not format.bare:  # there a call is the whole answer
        assert is_accepted(grammar_compiler, spec, f"{before}{call}")
        assert not is_accepted(grammar_compiler, spec, f"{before}{strange}")
    if format.between is not None:
        assert is_accepted(grammar_compiler, spec, f"{call}\n{call}\nDone.") and not is_accepted(
            grammar_compiler, spec, f"{call}\n{strange}"
        )


@pytest.mark.rest(keep=38)
@pytest.mark.parametrize("format", FAMILIES, ids=lambda format: format.name)
@pytest.mark.parametrize("properties", [[], {"a": 3}, {"a": {"type": 3, "anyOf": 3, "enum": "x"}}, {"\ud800": {}}])
def test_malformed_tool_schema_is_rejected_or_unconstrained(
    grammar_compiler: GrammarCompiler, format: Format, properties: Any
) -> None:
    tools = {"now": {"type": "object", "properties": properties, "required": 3}}
    for calls in (partial(required_calls, many=True), strict_calls):
        try:
            grammar_compiler.compile(calls(format, grammar_compiler.tokenizer, tools))
        except ServeError as error:
            assert error.status == 400 and error.message.encode()
    parser = AnswerText(grammar_compiler.tokenizer, format, tools=tools)
    for token in grammar_compiler.tokenizer.encode(
        CANONICAL[format.name].replace("weather", "now"), add_special=False
    ):
        parser.feed(token)
    parser.close()
