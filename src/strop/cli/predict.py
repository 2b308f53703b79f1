"""strop predict"""

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
    """Foresee from its grades whether a run succeeds.

    Prints how well grades and every baseline tell successes from failures, how far they can be read
    as probabilities, and thresholds under which few of the right runs fall.
    """
    from strop import app

    question = asked(file, truth=truth, baseline=baseline, success=success, seed=seed, nested=nested)
    result = app.predict_success(question)
    if json:
        emit(result, as_json=True)
        return
    print_comparison(result, title=f"strop predict {file.name}")
    _print_forecast(result)
    print_nested(result["nested"])


def _print_forecast(result: Mapping[str, Any]) -> None:
    default = result["default"]
    rows = [
        ("area under precision–recall", number(result["auprc"][default])),
        ("its chance level: share of successes", number(result["success_share"])),
        ("rejection ratio: 1 oracle, 0 blind", number(result["rejection"][default])),
    ]
    rows += [
        (f"failures among the {point['coverage']:.0%} with the highest grade", number(point["failures"]))
        for point in result["risk_coverage"]
    ]
    rows += [
        (f"Brier score, {name}", number(found["brier"])) for name, found in result["calibration"].items()
    ]
    print_table("as a forecast, fitted on other scenarios", ("", default), rows)
    held = [
        (f"{t['nominal']:.0%}", _value(t["threshold"]), number(t["right_held"]), number(t["wrong_caught"]))
        for t in result["thresholds"]
    ]
    print_table("thresholds", ("promised", "hold under", "successes held", "failures caught"), held)


def _value(threshold: float | None) -> str:
    return "too few runs" if threshold is None else f"{threshold:.3g}"
