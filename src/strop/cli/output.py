"""What a verb prints on standard output: one JSON object, or a table of the same values."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def emit(result: Mapping[str, Any], *, as_json: bool, title: str = "") -> None:
    """Print `result` as one JSON object on one line, or as a table with `title` above it."""
    if as_json:
        print(json.dumps(result, allow_nan=False, default=str))
        return
    print_table(title, (), [(key.replace("_", " "), shown(value)) for key, value in result.items()])


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table on standard output, `title` on a line above it; without `heads` names and values."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=bool(heads))
    for place, head in enumerate(heads or ("", "")):
        table.add_column(head, overflow="fold", no_wrap=not heads and place == 0)
    for row in rows:
        table.add_row(*row)
    console = Console(file=sys.stdout, markup=False, highlight=False)
    if title:
        console.print(title, style="italic", soft_wrap=True)
    console.print(table)


def shown(value: Any) -> str:
    """A value as a person reads it; a number with an interval keeps interval and n beside it.

    A null is "unknown"; an interval object without an estimate says why, by its `reason` or its `method`.
    """
    match value:
        case {"estimate": None, **rest}:
            why = rest.get("reason") or str(rest.get("method", "")).removeprefix("none: ")
            return f"unknown: {why or 'too little data'} (n = {rest.get('n', 0)})"
        case {"estimate": estimate, **rest}:
            return _interval(estimate, rest)
        case Mapping() if not value:
            return "none"
        case Mapping():
            return ", ".join(f"{str(key).replace('_', ' ')} {shown(item)}" for key, item in value.items())
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
        case list() | tuple():
            return ", ".join(map(shown, value)) or "none"
        case _:
            return str(value)


def _interval(estimate: Any, rest: Mapping[Any, Any]) -> str:
    text = f"{estimate:.3f}"
    if rest.get("low") is not None and rest.get("high") is not None:
        text += f"  [{rest['low']:.3f}, {rest['high']:.3f}]"
    if "n" in rest:
        text += f"  n = {rest['n']}"
    return f"{text}  {rest['method']}" if rest.get("method") else text
