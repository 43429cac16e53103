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
    """An answer's text with its marks, and its parts. `prompt`: how the prompt in front of it ends; `error`: a
    part of what is said of a call that was none."""

    format: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    prompt: str = ""
    error: str = ""
    cut: bool = False


def _json_calls(format: str) -> list[Transcript]:
    """Of the families that write calls as JSON between <tool_call> and </tool_call>."""
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
]  # fmt: skip
