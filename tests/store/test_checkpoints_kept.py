"""Old checkpoints are kept by rule, and what `latest` and `best` point at is never deleted."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from strop.store import checkpoints
from strop.store.run import Run

Move = tuple[str, int]

moves = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.just(0)),
        st.tuples(st.just("save again"), st.just(0)),
        st.tuples(st.just("save as best"), st.just(0)),
        st.tuples(st.just("best"), st.integers(0, 5)),
        st.tuples(st.just("prune"), st.integers(0, 4)),
        st.tuples(st.just("latest back"), st.integers(0, 5)),
    ),
    max_size=25,
)


@dataclass
class Model:
    """What ought to be there: names with their contents, oldest first, and where the pointers lead."""

    kept: dict[str, str] = field(default_factory=dict)
    latest: str | None = None
    best: str | None = None
    step: int = 0

    def forget(self, keep: int) -> None:
        names = sorted(self.kept, key=lambda name: [int(part) for part in name.split(".")])
        newest = names[::-1][:keep]
        self.kept = {n: c for n, c in self.kept.items() if n in newest or n in (self.latest, self.best)}


@settings(max_examples=40)
@given(moves)
def test_latest_and_best_stand_and_the_rest_goes_by_age(chosen: list[Move]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, model = Run.create(Path(folder) / "run", ""), Model()
        for count, move in enumerate(chosen):
            _do(run, model, move, f"content {count}")
            _check(run, model)


def _do(run: Run, model: Model, move: Move, content: str) -> None:
    kind, number = move
    names = sorted(model.kept)
    if kind.startswith("save"):
        model.step += kind != "save again"
        best = kind == "save as best"
        saved = checkpoints.save(run, model.step, lambda path: _write(path, content), {}, best=best)
        model.kept[saved.path.name] = content
        model.latest = saved.path.name
        model.best = saved.path.name if best else model.best
    elif kind == "prune":
        checkpoints.prune(run, number)
        model.forget(number)
    elif names and kind == "best":
        model.best = names[number % len(names)]
        checkpoints.point_best(run, model.best)
    elif names and kind == "latest back":
        model.latest = names[number % len(names)]
        (run.path / "checkpoints" / "latest").write_text(f"{model.latest}\n")


def _write(path: Path, content: str) -> None:
    (path / "adapter.bin").write_text(content)


def _check(run: Run, model: Model) -> None:
    home = run.path / "checkpoints"
    there = {path.name: (path / "adapter.bin").read_text() for path in home.glob("[0-9]*")}
    assert there == model.kept
    for found, name in ((checkpoints.latest(run), model.latest), (checkpoints.best(run), model.best)):
        assert (found.path.name if found else None) == name
