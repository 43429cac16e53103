"""Read a configuration from YAML. All errors are reported at once, each with its line."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.serve.config.checks import find_contradictions
from zinc_rt.serve.config.marks import Place, parse_marked_yaml
from zinc_rt.serve.config.settings import Config, TenantLimits

Settings = TypeVar("Settings")


def read_config(path: str | Path) -> Config:
    """Read a configuration file. Raises InputError with all errors, one per line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise make_read_error(path, error, next="name a YAML file; docs/serving.md shows one") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    return parse_config(text, str(path))


def parse_config(text: str, name: str) -> Config:
    """Parse the text of a configuration file. `name` prefixes each error. See `read_config`."""
    marked = parse_marked_yaml(text)
    wrong, config = marked.problems, None
    if not isinstance(marked.value, dict):
        wrong = wrong or [(1, "the file has no settings: the minimum is models: [{id: NAME, path: M.gguf}]")]
    else:
        config, errors = validate_settings(Config, marked.value)
        if "file" in marked.value:  # the one field that is no setting
            errors = [
                *errors,
                (("file",), f"file: unknown setting; known: {', '.join(_list_known_names(Config, ()))}"),
            ]
        elif config is not None:
            config = replace(_with_defaults(config, marked.value), file=name)
            errors = find_contradictions(config)
        wrong = wrong + [(marked.line(location), message) for location, message in errors]
    if wrong or config is None:
        lines = [f"{name}:{line}: {message}" for line, message in sorted(set(wrong))]
        raise InputError(
            "\n".join(lines), next=f"fix {'these' if len(lines) > 1 else 'this'}; nothing was changed"
        )
    return config


def validate_settings(kind: type[Settings], values: Any) -> tuple[Settings | None, list[tuple[Place, str]]]:
    """Convert plain values to settings. Return None and all errors as (location, message) if they are
    invalid."""
    try:
        return TypeAdapter(kind).validate_python(values), []
    except ValidationError as error:
        return None, [(error["loc"], _format_message(kind, error)) for error in error.errors(include_url=False)]


def _with_defaults(config: Config, values: dict[str, Any]) -> Config:
    """Fill missing values of each tenant from `defaults`."""
    rows = values.get("tenants") or ()
    tenants = [
        with_defaults(tenant, row, config.defaults) for tenant, row in zip(config.tenants, rows, strict=False)
    ]
    return replace(config, tenants=tuple(tenants) or config.tenants)


Limits = TypeVar("Limits", bound=TenantLimits)


def with_defaults(tenant: Limits, specified: dict[str, Any], defaults: TenantLimits) -> Limits:
    """Return the tenant with the defaults for every limit that is not in `specified`."""
    names = {field.name: "class" if field.name == "priority" else field.name for field in fields(TenantLimits)}
    return replace(
        tenant, **{name: getattr(defaults, name) for name, word in names.items() if word not in specified}
    )


# --- what is said of a value


def _format_message(kind: type[Any], error: ErrorDetails) -> str:
    where = ".".join(str(item) for item in error["loc"])
    name, around = str(error["loc"][-1]) if error["loc"] else "", error["loc"][:-1]
    if error["type"] == "unexpected_keyword_argument":
        known = list(_list_known_names(kind, around))
        return f"{where}: unknown setting{suggest_word(name, known) or '; the settings are ' + ', '.join(known)}"
    if error["type"] in ("missing", "missing_argument"):
        return f"{where}: is missing"
    if error["type"] == "dataclass_type":
        return f"{where}: {_shorten_value(error['input'])}: expected settings, each as NAME: VALUE"
    expected = error["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ")
    expected = expected.replace("String should match pattern", "expected a text that matches")
    return f"{where}: {_shorten_value(error['input'])}: {expected}"


def _shorten_value(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _list_known_names(kind: type[Any], place: Place) -> Iterator[str]:
    """Return the setting names at a location."""
    index: Any = kind
    for step in place:
        if isinstance(step, str) and is_dataclass(index):
            hint = get_type_hints(index).get(step)
            index = next((item for item in _list_nested_types(hint) if is_dataclass(item)), None)
    if is_dataclass(index):
        yield from (
            "class" if field.name == "priority" else field.name for field in fields(index) if field.name != "file"
        )


def _list_nested_types(hint: Any) -> Iterator[Any]:
    """Return the types that a type hint consists of."""
    if get_origin(hint) in (Annotated, tuple, types.UnionType):
        for choice in get_args(hint):
            yield from _list_nested_types(choice)
    else:
        yield hint
