"""Qwen 3: <think> reasoning </think>, <tool_call> {"name", "arguments"} </tool_call>.

From https://huggingface.co/Qwen/Qwen3-8B, its chat template.
"""

from __future__ import annotations

from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.json_calls import demand_lines, find_json_arguments, one_json_call

THINK = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")


def calls_in_json(template: str) -> bool:
    """Return whether the calls between these markers are JSON. GLM 4.5 uses <arg_key> instead."""
    return CALL[0] in template and not any(other in template for other in ("<function=", "<arg_key>"))


QWEN3 = Format(
    "qwen3",
    fits=lambda template: calls_in_json(template) and THINK[1] in template,
    reasoning=THINK,
    call=CALL,
    read=one_json_call,
    find_arguments=find_json_arguments,
    demand=demand_lines(CALL[1]),
    between="\n",
)
