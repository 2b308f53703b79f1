"""Write docs/run-file.md from the settings' own descriptions: python scripts/make_reference.py [--check]."""

import sys
from pathlib import Path
from typing import Any

from strop.config import RunConfig

TARGET = Path(__file__).parent.parent / "docs/run-file.md"
HEAD = """# The run file

`strop train RUN.toml` reads one TOML file. Every key is listed here; an unknown one is an error. Relative
paths are relative to the file. `--set table.key=value` changes a key for one run, and the resolved settings
are written to the run's folder. Made by `python scripts/make_reference.py`.
"""


def reference() -> str:
    """The page: one section a table, one row a key."""
    sections = [HEAD]
    for name, field in RunConfig.model_fields.items():
        kind: Any = field.annotation
        sections.append(f"## [{name}]\n\n{kind.__doc__.strip().splitlines()[0]}\n\n{_table(kind)}\n")
    return "\n".join(sections)


def _table(kind: Any) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, field in kind.model_fields.items():
        default = "required" if field.is_required() else f"`{_shown(field.default)}`"
        rows.append(f"| `{key}` | {default} | {field.description} |")
    return "\n".join(rows)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def main() -> int:
    text = reference()
    if "--check" in sys.argv:
        return 0 if TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
