"""strop select"""

from collections.abc import Mapping
from typing import Any

from strop.cli.comparison import number, print_comparison, print_nested
from strop.cli.options import Json
from strop.cli.output import emit, print_table
from strop.cli.uses_options import Baseline, Grades, Nested, Seed, Truth, asked


def run(
    file: Grades,
    truth: Truth = None,
    baseline: Baseline = None,
    seed: Seed = 0,
    nested: Nested = True,
    json: Json = False,
) -> None:
    """Choose the best of several attempts by their grades.

    Prints what the choice is worth beside a random one, the best there was, and every baseline.
    """
    from strop import app

    result = app.select_best(asked(file, truth=truth, baseline=baseline, seed=seed, nested=nested))
    if json:
        emit(result, as_json=True)
        return
    print_comparison(result, title=f"strop select {file.name}")
    _print_curve(result["best_of"], result["default"])
    print_nested(result["nested"])


def _print_curve(best_of: Mapping[str, Any], default: str) -> None:
    size = best_of["n_attempts"]
    if size < 2:
        return
    lines = {name: best_of["curve"][name] for name in (default, "oracle", "random")}
    rows = [(str(k + 1), *(number(line[k]) for line in lines.values())) for k in range(size)]
    print_table(f"best of k, {best_of['scenarios']} scenarios", ("k", *lines), rows)
    print(f"gain over random, best of {size}: {number(best_of['gain_over_random'][default])}")
    print(f"share of the oracle's gain: {number(best_of['oracle_gain_closed'][default])}")
