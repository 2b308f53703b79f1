"""Old verdicts read again with today's parser and combination: no call, no key."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.errors import InputError
from strop.judge.replay import reread
from strop.judge.verdict import Verdict
from strop.trajectory.lines import numbered_lines, parse_object, write_objects

OK = "ok"
SAME = 1e-9


def replay_file(scores: Path, out: Path) -> dict[str, Any]:
    """Read the raw replies in a file of verdicts again, write the new verdicts to `out`, say what changed.

    `before` and `after` count verdicts by "ok" or failure class, `moved` those that changed it, as
    "before -> after"; `rescored` are the groups whose scores changed though both verdicts have some.
    Raises InputError, with file and line, for what is no verdict, and where `out` is the file read.
    """
    if out.exists() and out.samefile(scores):
        raise InputError(f"--out {out}: is the file that is read again; give another")
    before = _verdicts(scores)
    after = [reread(verdict) for verdict in before]
    write_objects(out, (verdict.to_json() for verdict in after))
    pairs = list(zip(before, after, strict=True))
    return {
        "verdicts": len(before),
        "before": _classes(before),
        "after": _classes(after),
        "moved": _moved(pairs),
        "rescored": [old.group_id for old, new in pairs if _rescored(old, new)],
        "out": str(out),
    }


def _verdicts(file: Path) -> list[Verdict]:
    found = []
    for line, text in numbered_lines(file):
        where = f"{file}:{line}"
        try:
            found.append(Verdict.from_json(parse_object(text, where=where)))
        except InputError as error:
            raise InputError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from error
    if not found:
        raise InputError(f"{file}: holds no verdict; give a file that strop judge wrote")
    return found


def _class(verdict: Verdict) -> str:
    return str(verdict.failure or OK)


def _classes(verdicts: Sequence[Verdict]) -> dict[str, int]:
    return dict(sorted(Counter(map(_class, verdicts)).items()))


def _moved(pairs: Sequence[tuple[Verdict, Verdict]]) -> dict[str, int]:
    moves = Counter(f"{_class(old)} -> {_class(new)}" for old, new in pairs if _class(old) != _class(new))
    return dict(sorted(moves.items()))


def _rescored(old: Verdict, new: Verdict) -> bool:
    if old.scores is None or new.scores is None:
        return False
    if set(old.scores) != set(new.scores):
        return True
    return any(abs(old.scores[name] - new.scores[name]) > SAME for name in old.scores)
