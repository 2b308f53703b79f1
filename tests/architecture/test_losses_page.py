"""docs/losses.md says what the code does."""

from pathlib import Path

from strop.config.losses import LOSSES

PAGE = Path(__file__).parents[2] / "docs/losses.md"


def test_the_table_is_the_registry() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    heads = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    head, *rows = heads
    keys = [name.strip("`") for name in head[2:7]]
    assert [row[0].strip("`") for row in rows] == list(LOSSES)
    for row, loss in zip(rows, LOSSES.values(), strict=True):
        assert row[1] == loss.surrogate
        assert dict(zip(keys, row[2:7], strict=True)) == {k: str(v) for k, v in loss.settings().items()}
