"""strop attribute"""

from collections.abc import Mapping
from typing import Any

from strop.cli.comparison import number, print_comparison, print_nested
from strop.cli.options import Json
from strop.cli.output import emit, print_table
from strop.cli.uses_options import Baseline, Grades, Nested, Seed, Success, Truth, asked


def run(
    file: Grades,
    truth: Truth = None,
    baseline: Baseline = None,
    success: Success = 1.0,
    seed: Seed = 0,
    nested: Nested = True,
    json: Json = False,
) -> None:
    """Name the step that broke a failed run by its grades.

    Prints how often that is the first wrong step, beside guesses that read nothing and every baseline.
    """
    from strop import app

    question = asked(file, truth=truth, baseline=baseline, success=success, seed=seed, nested=nested)
    result = app.attribute_failures(question)
    if json:
        emit(result, as_json=True)
        return
    print_comparison(result, title=f"strop attribute {file.name}")
    _print_constants(result["constants"])
    print_nested(result["nested"])


def _print_constants(constants: Mapping[str, Any]) -> None:
    best = constants["best_in_sample"]
    rows = [(f"always step {k}", number(rate)) for k, rate in list(constants["always"].items())[:8]]
    rows += [
        ("best constant, chosen on other scenarios", number(constants["best_crossfitted"])),
        (f"best constant on its own data: step {best['step']}", number(best["rate"])),
        ("the default less the chosen constant", number(constants["difference"])),
    ]
    print_table("null: always the same step", ("", "hit rate"), rows)
