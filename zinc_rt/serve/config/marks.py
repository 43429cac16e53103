"""Parse YAML to plain values with their line numbers, so that each error can name its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

Place = tuple[str | int, ...]  # keys and numbers from the top: ("tenants", 0, "weight")


@dataclass(slots=True)
class MarkedYaml:
    """A parsed document. `value`: its value; `lines`: the line of each location; `problems`: YAML errors as
    (line, message)."""

    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """Return the line of a location, or of its nearest enclosing location in the text."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def parse_marked_yaml(text: str) -> MarkedYaml:
    """Parse a single document. JSON is valid YAML."""
    marked = MarkedYaml()
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            marked.value = _parse_value(loader, node, (), marked, ()) if node is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        marked.problems.append((line, getattr(error, "problem", None) or str(error) or "not YAML"))
    return marked


def _parse_value(loader: Any, node: yaml.Node, place: Place, marked: MarkedYaml, around: tuple[int, ...]) -> Any:
    line = node.start_mark.line + 1
    marked.lines.setdefault(place, line)
    if id(node) in around:
        marked.problems.append((line, "an alias inside the node that it refers to"))
        return None
    inside: Callable[..., Any] = lambda part, at: _parse_value(loader, part, at, marked, (*around, id(node)))  # noqa: E731
    if isinstance(node, yaml.SequenceNode):
        return [inside(item, (*place, index)) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _parse_scalar(loader, node, line, marked)
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, index = str(getattr(key_node, "value", "?")), key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            marked.problems.append((index, "a key that is not a word"))
        elif key_node.tag == "tag:yaml.org,2002:merge":
            marked.problems.append(
                (index, "merge keys (<<) are not supported: write each value, or use `defaults`")
            )
        elif key in values:
            marked.problems.append((index, f"{key} is set twice: first in line {marked.lines[(*place, key)]}"))
        else:
            marked.lines[(*place, key)] = index
            values[key] = inside(value_node, (*place, key))
    return values


def _parse_scalar(loader: Any, node: yaml.Node, line: int, marked: MarkedYaml) -> Any:
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:  # a tag of Python's, the 31st of February
        marked.problems.append((line, str(getattr(error, "problem", None) or error)))
        return None
