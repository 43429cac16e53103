"""Which tools a conversation's answer may call, and which it must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zinc_rt.serve.api.schema import ChatBody, NamedToolChoice
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.format import Tools


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`definitions`: as templates want them. `schemas`: of the arguments, by function. `must`: functions of which
    one has to be called, none where that is free. `many`: whether several calls may be made; `strict`: whether all
    that are made keep to their schemas."""

    definitions: list[dict[str, Any]]
    schemas: Tools
    must: tuple[str, ...] = ()
    many: bool = True
    strict: bool = False


def tool_use(body: ChatBody) -> ToolUse:
    """Raises ServeError 400 where a choice names what is not there."""
    tools, choice = body.tools or [], body.tool_choice
    if choice == "none":
        tools = []
    elif choice is not None and choice != "auto" and not tools:
        raise ServeError(400, "tool_choice: there are no tools to choose from", param="tool_choice")
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
                f"tool_choice: no function is called {choice.function.name!r:.80}; there are {', '.join(schemas)}",
                param="tool_choice",
            )
        must = (choice.function.name,)
    definitions = [tool.model_dump(exclude_unset=True) for tool in tools]
    many = body.parallel_tool_calls is not False and not isinstance(choice, NamedToolChoice)
    return ToolUse(definitions, schemas, must, many, any(tool.function.strict for tool in tools))
