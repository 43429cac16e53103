"""The tools that an answer may call, and those that it must call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zinc_rt.serve.api.schema import ChatBody, NamedToolChoice
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.format import Tools


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request.

    `definitions`: in the form that templates expect. `schemas`: of the arguments, by function name. `must`:
    functions of which one must be called, empty if a call is optional. `many`: several calls are allowed;
    `strict`: all calls must match their schemas.
    """

    definitions: list[dict[str, Any]]
    schemas: Tools
    must: tuple[str, ...] = ()
    many: bool = True
    strict: bool = False


def parse_tool_use(body: ChatBody) -> ToolUse:
    """Return the tools of the body. Raises ServeError 400 if the tool choice names an unknown function."""
    tools, choice = body.tools or [], body.tool_choice
    if choice == "none":
        tools = []
    elif choice is not None and choice != "auto" and not tools:
        raise ServeError(400, "tool_choice: the request has no tools", param="tool_choice")
    schemas = {tool.function.name: tool.function.parameters or {"type": "object"} for tool in tools}
    if len(schemas) != len(tools):
        raise ServeError(400, "tools: two functions have the same name", param="tools")
    must: tuple[str, ...] = ()
    if choice == "required":
        must = tuple(schemas)
    elif isinstance(choice, NamedToolChoice):
        if choice.function.name not in schemas:
            raise ServeError(
                400,
                (f"tool_choice: no function {choice.function.name!r:.80}; the tools are {', '.join(schemas)}"),
                param="tool_choice",
            )
        must = (choice.function.name,)
    definitions = [tool.model_dump(exclude_unset=True) for tool in tools]
    many = body.parallel_tool_calls is not False and not isinstance(choice, NamedToolChoice)
    return ToolUse(definitions, schemas, must, many, any(tool.function.strict for tool in tools))
