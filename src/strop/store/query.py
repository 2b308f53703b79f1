"""SQL over a run's files, by DuckDB."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import InputError
from strop.store.run import KINDS, Run

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TRAJECTORY_COLUMNS = {
    "trajectory_id": "VARCHAR",
    "scenario_id": "VARCHAR",
    "group_id": "VARCHAR",
    "messages": "JSON",
    "tools": "JSON",
    "turns": "JSON",
    "score": "DOUBLE",
    "unscored": "VARCHAR",
    "failure": "VARCHAR",
    "truth": "DOUBLE",
    "first_wrong_step": "BIGINT",
    "metrics": "JSON",
    "metadata": "JSON",
    "schema": "BIGINT",
}
_EMPTY_COLUMNS = {
    "trajectories": _TRAJECTORY_COLUMNS,
    "steps": {"step": "BIGINT"},
    "events": {"time": "DOUBLE", "kind": "VARCHAR"},
    "verdicts": {"group_id": "VARCHAR"},
    "grades": {"trajectory_id": "VARCHAR"},
}
_LONGEST_LINE = 128 << 20


def query(run: Run, sql: str) -> list[dict[str, Any]]:
    """Rows of a query over the views trajectories, verdicts, grades (each with `part`), steps and events.

    Nothing is copied or kept: the views read the JSONL files, and a view whose files are missing is
    empty. Columns of `trajectories` are fixed, nested ones of type JSON; those of the others are what
    the lines hold. Raises InputError for SQL or a line that DuckDB refuses.
    """
    import duckdb

    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        try:
            for view in _EMPTY_COLUMNS:
                _create_view(connection, view, _files(run, view))
            cursor = connection.execute(sql)
            names = [column[0] for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.Error as error:
            raise InputError(f"query of {run.path}: {' '.join(str(error).split())}") from error


def _files(run: Run, view: str) -> list[Path]:
    for kind in KINDS:
        if kind == view:
            return [run.part_path(kind, part) for part in run.parts(kind)]
    path = run.path / f"{view}.jsonl"
    return [path] if path.exists() else []


def _create_view(connection: "DuckDBPyConnection", view: str, files: list[Path]) -> None:
    filled = [path for path in files if path.stat().st_size]
    has_parts = view in KINDS
    if filled:
        part = ", parse_filename(filename, true) AS part" if has_parts else ""
        body = f"SELECT * EXCLUDE (filename){part} FROM {_scan(view, filled)}"
    else:
        columns = _EMPTY_COLUMNS[view] | ({"part": "VARCHAR"} if has_parts else {})
        names = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns.items())
        body = f"SELECT {names} WHERE false"
    connection.execute(f"CREATE VIEW {view} AS {body}")


def _scan(view: str, files: list[Path]) -> str:
    names = ", ".join(_quoted(re.sub(r"([*?\[])", r"[\1]", str(path))) for path in files)
    longest = min(max(path.stat().st_size for path in files) + 1, _LONGEST_LINE)
    options = f"format='newline_delimited', filename=true, maximum_object_size={max(longest, 16 << 20)}"
    if view == "trajectories":
        columns = ", ".join(f"{_quoted(name)}: '{kind}'" for name, kind in _TRAJECTORY_COLUMNS.items())
        return f"read_json([{names}], {options}, columns={{{columns}}})"
    return f"read_json([{names}], {options}, union_by_name=true, sample_size=-1)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
