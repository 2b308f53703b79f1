"""Write docs/run-file.md from the settings' own descriptions: python scripts/make_reference.py [--check]."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from strop.config import RunConfig
from strop.trajectory.atomic import replacing

TARGET = Path(__file__).parent.parent / "docs/run-file.md"
HEAD = """# The run file

`strop train RUN.toml` reads one TOML file. Every key is listed here; an unknown one is an error. Relative
paths are relative to the file. `--set table.key=value` changes a key for one run (a table inside a table goes
in one value: `--set 'judge.prices={"some-model" = {input = 0.25, output = 2.0}}'`), and the resolved settings
are written to the run's folder. A judge file, `strop judge FILE --judge JUDGE.toml`, holds the keys of
[\\[judge\\]](#judge) without that heading; [the judge](judge.md) says how to use them. Made by
`python scripts/make_reference.py`.
"""


def reference() -> str:
    """The page: one section a table, one row a key."""
    sections = [HEAD]
    for name, field in RunConfig.model_fields.items():
        kind: Any = field.annotation
        sections.append(_section(f"## [{name}]", kind))
        sections += [_section(f'### [{name}.{key}."name"]', inner) for key, inner in _named_tables(kind)]
    return "\n".join(sections)


def _section(heading: str, kind: Any) -> str:
    return f"{heading}\n\n{kind.__doc__.strip().splitlines()[0]}\n\n{_table(kind)}\n"


def _named_tables(kind: Any) -> Iterator[tuple[str, Any]]:
    """The keys of a table that hold tables under names of the user's own, with the class of these."""
    for key, field in kind.model_fields.items():
        if get_origin(field.annotation) is Mapping and isinstance(
            get_args(field.annotation)[1], type(BaseModel)
        ):
            yield key, get_args(field.annotation)[1]


def _table(kind: Any) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, field in kind.model_fields.items():
        default = "required" if field.is_required() else _shown(field)
        rows.append(f"| `{key}` | {default} | {field.description} |")
    return "\n".join(rows)


def _shown(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return "`none`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str | Path) else f"`{value}`"


def main() -> int:
    text = reference()
    if "--check" in sys.argv:
        return 0 if TARGET.read_text(encoding="utf-8") == text else 1
    with replacing(TARGET) as file:
        file.write(text.encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
