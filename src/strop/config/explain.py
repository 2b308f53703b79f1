"""One line for a settings mistake: where it stands, what was found, what is allowed."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

_BOUNDS = {
    "exclusiveMinimum": "greater than {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "less than {}",
    "maximum": "at most {}",
}
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list of words",
    "object": "a table",
}


@dataclass(frozen=True, slots=True)
class _Named:
    """A table whose keys are names of the user's own, each of them a table of one kind."""

    kind: type[BaseModel]


_Holder = type[BaseModel] | _Named


def explain(error: ValidationError, kind: type[BaseModel], file: str, overrides: Sequence[str] = ()) -> str:
    """The first mistake of `error` as one line; how many more there are is said at its end.

    `kind` is the class that was validated. A mistake in a key that `overrides` sets is laid to --set.
    """
    problems = {_place(kind, problem["loc"]): problem for problem in reversed(error.errors())}
    place, problem = list(problems.items())[-1]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    names = {text.partition("=")[0].strip() for text in overrides}
    if ".".join(place) in names:
        where = f"--set {'.'.join(place)}"
    else:
        table = bool(place) and (_inside(kind, place[0]) is not None or isinstance(problem["input"], dict))
        where = f"{file}: {_heading(place, table=table)}".removesuffix(": ")
    return f"{where}: {_what(problem, kind, place)}{more}"


def _place(kind: type[BaseModel], loc: Sequence[int | str]) -> tuple[str, ...]:
    """The keys of `loc` without the parts that pydantic adds for unions and list positions."""
    keys: list[str] = []
    holder: _Holder | None = kind
    for part in map(str, loc):
        if holder is None:
            break
        keys.append(part)
        holder = _inside(holder, part)
    return tuple(keys)


def _inside(holder: _Holder, key: str) -> _Holder | None:
    """What holds the keys under `key`; None where `key` is a plain value."""
    if isinstance(holder, _Named):
        return holder.kind
    field = holder.model_fields.get(key)
    inner = field.annotation if field else None
    if get_origin(inner) is Mapping:
        inner = get_args(inner)[1]
        return _Named(inner) if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _heading(place: Sequence[str], *, table: bool) -> str:
    if not place:
        return ""
    if len(place) == 1:
        return f"[{place[0]}]" if table else place[0]
    return f"[{place[0]}] {'.'.join(place[1:])}"


def _what(problem: Mapping[str, Any], kind: type[BaseModel], place: Sequence[str]) -> str:
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    owner: _Holder | None = kind
    for key in place[:-1]:
        owner = owner and _inside(owner, key)
    if owner is None or isinstance(owner, _Named):
        return f"{_shown(problem['input'])} is not allowed; it must be a table"
    if problem["type"] == "extra_forbidden":
        sort = "table" if isinstance(problem["input"], dict) else "key"
        return f"unknown {sort}; {_suggestion(place[-1], owner)}"
    schema = _schema(owner, place[-1])
    allowed = _allowed(schema)
    about = f" ({schema['description']})" if "description" in schema else ""
    if problem["type"] == "missing":
        return f"is missing; it must be {allowed}{about}"
    return f"{_shown(problem['input'])} is not allowed; it must be {allowed}{about}"


def _suggestion(key: str, owner: type[BaseModel]) -> str:
    known = list(owner.model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"


def _schema(owner: type[BaseModel], key: str) -> Mapping[str, Any]:
    schema = owner.model_json_schema()
    found: Mapping[str, Any] = schema["properties"][key]
    return {"type": "object"} if "$ref" in found else found


def _allowed(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_allowed(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(f'"{value}"' for value in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if schema.get("format") == "path":
        return "a path"
    bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    return " ".join([_TYPES[schema["type"]], " and ".join(bounds)]).strip()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
