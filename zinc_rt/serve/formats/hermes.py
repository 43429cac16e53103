"""Hermes 2 Pro and 3, Qwen 2.5: <tool_call> {"name", "arguments"} </tool_call>, no reasoning.

After https://github.com/NousResearch/Hermes-Function-Calling.
"""

from __future__ import annotations

from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.json_calls import demand_lines, one_json_call
from zinc_rt.serve.formats.qwen3 import CALL, calls_in_json

HERMES = Format(
    "hermes",
    fits=calls_in_json,
    call=CALL,
    read=one_json_call,
    demand=demand_lines(CALL[1]),
    between="\n",
)
