"""Golden transcripts: what a model of a family writes, and what a client is to get of it."""

from __future__ import annotations

from dataclasses import dataclass

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "units": {"enum": ["metric", "imperial"]},
        "places": {"type": "array", "items": {"type": "string"}},
        "near": {"type": "object"},
        "exact": {"type": "boolean"},
    },
    "required": ["city"],
}
TOOLS = {"weather": WEATHER, "now": {"type": "object", "properties": {}}}


@dataclass(frozen=True)
class Transcript:
    """An answer's text with markers, and its parts. `prompt`: the end of the preceding prompt; `error`: part of
    the message about an invalid call.
    """

    format: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    prompt: str = ""
    error: str = ""
    cut: bool = False


LONG = f'{{"name": "now", "arguments": {{"a": {"9" * 5000}}}}}'  # more digits than Python turns into a number


def _json_calls(format: str) -> list[Transcript]:
    """Transcripts of families that write calls as JSON between <tool_call> and </tool_call>."""
    one = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "days": 2}}\n</tool_call>'
    call = ("weather", '{"city": "Köln", "days": 2}')
    return [
        Transcript(format, "Hello <b>you</b>.\n", "Hello <b>you</b>.\n"),
        Transcript(format, one, calls=(call,)),
        Transcript(format, f"I look.\n\n{one}\n{one}\n", "I look.", calls=(call, call)),
        Transcript(format, f"{one} Done.", "Done.", calls=(call,)),
        Transcript(format, '<tool_call>{"name": "now", "arguments": "{}"}', calls=(("now", "{}"),)),
        Transcript(
            format,
            '<tool_call>{"name": "weather", "arguments": {"city": ]}</tool_call>!',
            '<tool_call>{"name": "weather", "arguments": {"city": ]}</tool_call>!',
            error="no JSON",
        ),
        Transcript(format, '<tool_call>{"arguments": {}}</tool_call>', '<tool_call>{"arguments": {}}</tool_call>',
                   error='"name"'),
        Transcript(format, '<tool_call>{"name": "now", "arguments": {"a": NaN}}</tool_call>',
                   '<tool_call>{"name": "now", "arguments": {"a": NaN}}</tool_call>', error="NaN"),
        Transcript(format, r'<tool_call>{"name": "now", "arguments": {"a": "\ud800"}}</tool_call>',
                   calls=(("now", r'{"a": "\ud800"}'),)),
        Transcript(format, r'<tool_call>{"name": "\ud800", "arguments": {}}</tool_call>',
                   r'<tool_call>{"name": "\ud800", "arguments": {}}</tool_call>', error='"name"'),
        Transcript(format, f'<tool_call>{LONG}</tool_call>', f'<tool_call>{LONG}</tool_call>', error="no JSON"),
        Transcript(format, 'So:\n<tool_call>\n{"name": "weather", "arg', "So:", error="cut", cut=True),
        Transcript(format, "a </tool_call> b", "a </tool_call> b"),
    ]  # fmt: skip


def _qwen_thinking(format: str) -> list[Transcript]:
    return [
        Transcript(format, "<think>\nOne\ntwo\n</think>\n\nThree.", "Three.", "One\ntwo"),
        Transcript(format, "One\n</think>\n\nTwo", "Two", "One", prompt="<|im_start|>assistant\n<think>\n"),
        Transcript(format, "<think>\n\n</think>\n\nHi", "Hi"),
        Transcript(format, "<think>never closed", reasoning="never closed"),
        Transcript(format, "a < b, </thin", "a < b, </thin"),
        Transcript(format, "plain </think> text", "plain </think> text"),
    ]


def _qwen_xml() -> list[Transcript]:
    def format_call(inside: str) -> str:
        return f"<tool_call>\n<function=weather>\n{inside}</function>\n</tool_call>"

    def format_parameter(key: str, text: str) -> str:
        return f"<parameter={key}>\n{text}\n</parameter>\n"

    format, now = "qwen3-xml", "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    typed = format_parameter("city", "12") + format_parameter("days", "12") + format_parameter("exact", "True")
    nested = format_parameter("places", '["a", "b"]') + format_parameter("near", '{"x": [1.5, null]}')
    several = format_parameter("city", "if a < b:\n  </b>\n")
    odd = format_parameter("days", "soon") + format_parameter("new", "1")
    return [
        Transcript(format, format_call(typed), calls=(("weather", '{"city": "12", "days": 12, "exact": true}'),)),
        Transcript(
            format, format_call(nested), calls=(("weather", '{"places": ["a", "b"], "near": {"x": [1.5, null]}}'),)
        ),
        Transcript(format, format_call(several), calls=(("weather", r'{"city": "if a < b:\n  </b>\n"}'),)),
        Transcript(format, format_call(odd), calls=(("weather", '{"days": "soon", "new": "1"}'),)),
        Transcript(format, f"Let me see.\n{now}\n{now}", "Let me see.", calls=(("now", "{}"), ("now", "{}"))),
        Transcript(format, f"<think>\nI call.\n{now}", reasoning="I call.", calls=(("now", "{}"),)),
        Transcript(format, format_call("and more"), format_call("and more"), error="text besides parameters"),
        Transcript(format, "<tool_call>now</tool_call>", "<tool_call>now</tool_call>", error="<function=NAME>"),
        Transcript(format, "<tool_call>\n<function=weather>\n<param", error="cut", cut=True),
        *_qwen_thinking(format),
    ]


def gemma_cases() -> list[Transcript]:
    def format_call(inside: str) -> str:
        return f"<|tool_call>call:weather{{{inside}}}<tool_call|>"

    format = "gemma4"
    text = '<|"|>a, {b}: [c]<|"|>'
    words = format_call('city:<|"|>x')
    return [
        Transcript(format, "Hello.", "Hello."),
        Transcript(format, "<|channel>thought\nHm.\n<channel|>Hello.", "Hello.", "Hm."),
        Transcript(format, "<|channel>thought\n<channel|>Hello.", "Hello."),
        Transcript(format, "<|channel>th", reasoning="th"),
        Transcript(format, "<|channel>other\nx<channel|>y", "y", "other\nx"),
        Transcript(
            format, format_call(f"city:{text},days:2"), calls=(("weather", '{"city": "a, {b}: [c]", "days": 2}'),)
        ),
        Transcript(
            format,
            format_call('near:{<|"|>k<|"|>:[1.5,true,null,{}]},places:[]'),
            calls=(("weather", '{"near": {"k": [1.5, true, null, {}]}, "places": []}'),),
        ),
        Transcript(format, 2 * "<|tool_call>call:now{}<tool_call|>", calls=(("now", "{}"), ("now", "{}"))),
        Transcript(format, format_call("city:Ulm"), format_call("city:Ulm"), error="'Ulm' is not a valid value"),
        Transcript(format, words, words, error="unterminated"),
        Transcript(format, format_call("near:" + 99 * "["), format_call("near:" + 99 * "["), error="too deep"),
        Transcript(format, "<|tool_call>call:weather{ci", error="cut", cut=True),
        Transcript(
            format, "a <|tool_call>now()<tool_call|>", "a <|tool_call>now()<tool_call|>", error="call:NAME"
        ),
    ]


def llama_cases() -> list[Transcript]:
    format, call = "llama3-json", '{"name": "weather", "parameters": {"city": "Ulm"}}'
    weather = ("weather", '{"city": "Ulm"}')
    return [
        Transcript(format, "Hello {you}.", "Hello {you}."),
        Transcript(format, call, calls=(weather,)),
        Transcript(format, f" {call} ", calls=(weather,)),
        Transcript(format, f"<|python_tag|>{call}", calls=(weather,)),
        Transcript(format, f"{call}; {call}", calls=(weather, weather)),
        Transcript(format, '{"name": "Ada", "parameters": {}}', '{"name": "Ada", "parameters": {}}'),
        Transcript(format, '{"answer": 42}', '{"answer": 42}'),
        Transcript(format, "{not JSON", "{not JSON"),
        Transcript(format, "<|python_tag|>print(1)", "<|python_tag|>print(1)", error="no JSON"),
        Transcript(format, '{"name": "weather", "para', error="cut", cut=True),
    ]


def mistral_cases(format: str) -> list[Transcript]:
    weather, now = '{"name": "weather", "arguments": {"city": "Ulm"}}', '{"name": "now", "arguments": {}}'
    both = (("weather", '{"city": "Ulm"}'), ("now", "{}"))
    return [
        Transcript(format, "Hello.", "Hello."),
        Transcript(format, f"[TOOL_CALLS] [{weather}, {now}]", calls=both),
        Transcript(format, f"I look. [TOOL_CALLS][{now}]", "I look.", calls=(both[1],)),
        Transcript(format, '[TOOL_CALLS]weather[ARGS]{"city": "Ulm"}[TOOL_CALLS]now[ARGS]{}', calls=both),
        Transcript(format, '[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Ulm"}', calls=(both[0],)),
        Transcript(format, "[TOOL_CALLS]weather", "[TOOL_CALLS]weather", error="no JSON"),
        Transcript(format, "[TOOL_CALLS]now[ARGS][]", "[TOOL_CALLS]now[ARGS][]", error="an object"),
        Transcript(format, f"[TOOL_CALLS][{weather}, {{", error="cut", cut=True),
    ]


def harmony_cases() -> list[Transcript]:
    begin, thought = (
        "<|start|>user<|message|>?<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>I think.<|end|>",
    )
    final, turn = "<|channel|>final<|message|>Hello <b>you</b>.<|return|>", "<|start|>assistant"
    head = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    call = f'{head}{{"city": "Köln", "days": 2}}<|call|>'
    other = " to=functions.now<|channel|>commentary json<|message|>{}<|call|>"
    weather, now = ("weather", '{"city": "Köln", "days": 2}'), ("now", "{}")
    bad = '<|channel|>commentary to=functions.now json<|message|>{"a": ]}'
    return [
        Transcript("harmony", final, "Hello <b>you</b>.", prompt=begin),
        Transcript("harmony", f"{thought}{turn}{final}", "Hello <b>you</b>.", "I think.", prompt=begin),
        Transcript("harmony", f"{thought}{turn}{call}", reasoning="I think.", calls=(weather,), prompt=begin),
        Transcript("harmony", other, calls=(now,)),
        Transcript("harmony", f"{call}{turn}{other}", calls=(weather, now)),
        Transcript(
            "harmony",
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + call,
            "I look.",
            calls=(weather,),
        ),
        Transcript("harmony", "<|channel|>analysis<|message|>I th", reasoning="I th", prompt=begin, cut=True),
        Transcript("harmony", "<|channel|>ana", prompt=begin, cut=True),
        Transcript("harmony", "to whom?", "to whom?", prompt=begin),
        Transcript("harmony", "llo.<|return|>", "llo.", prompt=f"{begin}<|channel|>final<|message|>He"),
        Transcript(
            "harmony",
            "nk.<|end|>" + turn + final,
            "Hello <b>you</b>.",
            "nk.",
            prompt=f"{begin}<|channel|>analysis<|message|>I thi",
        ),
        Transcript("harmony", f"{bad}<|call|>", f"{bad}<|call|>", error="no JSON"),
        Transcript("harmony", bad, error="cut inside a tool call", cut=True),
        Transcript(
            "harmony",
            "<|channel|>analysis to=python<|message|>[1]<|call|>",
            "<|channel|>analysis to=python<|message|>[1]<|call|>",
            error="an object",
        ),
    ]


TRANSCRIPTS = [
    Transcript("plain", " <think>x</think> <tool_call>{}\n", " <think>x</think> <tool_call>{}\n"),
    *_json_calls("hermes"),
    Transcript("hermes", "<think>x</think>", "<think>x</think>"),
    *_json_calls("qwen3"),
    *_qwen_thinking("qwen3"),
    Transcript(
        "qwen3",
        '<think>\nI need it.\n</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        reasoning="I need it.",
        calls=(("now", "{}"),),
    ),
    Transcript("qwen3", "<think>a <tool_call> b</think>c", "c", "a <tool_call> b"),
    *_qwen_thinking("think"),
    Transcript("think", "<think>a</think><tool_call>b</tool_call>", "<tool_call>b</tool_call>", "a"),
    *_qwen_xml(),
    *gemma_cases(),
    *llama_cases(),
    *harmony_cases(),
    *mistral_cases("mistral"),
    *mistral_cases("mistral-args"),
    Transcript("mistral-args", "[THINK]Hm.[/THINK]Hello.", "Hello.", "Hm."),
]
