"""A result beside its nulls on the screen: one line a score, interval and n in each."""

from collections.abc import Mapping
from typing import Any

from strop.cli.output import print_table, shown


def print_comparison(result: Mapping[str, Any], *, title: str) -> None:
    """The default, other readings, then the nulls with how much the default is better, and the verdict."""
    default = result["default"]
    rows = [
        (f"{name}{' (default)' if name == default else ''}", number(estimate), "")
        for name, estimate in result["results"].items()
    ]
    rows += [
        (f"null: {name}", number(estimate), number(result["differences"].get(name)))
        for name, estimate in result["nulls"].items()
    ]
    if result["results"][default]["n"]:
        print_table(title, ("", result["measure"], "default less it"), rows)
    print(result["verdict"])
    left = {**result.get("left_out", {}), **result["excluded"]}
    if left:
        print(f"left out: {', '.join(f'{count} {reason}' for reason, count in left.items())}")


def print_nested(nested: Mapping[str, Any] | None) -> None:
    """The reading tuned inside cross-validation, beside the fixed one and beside tuned noise."""
    if nested is None or not nested["tuned"]["n"]:
        return
    best, noise = nested["best_in_sample"], nested["best_noise_in_sample"]
    rows = [
        ("chosen on other scenarios", number(nested["tuned"])),
        ("fixed default, same runs", number(nested["default"])),
        ("chosen less fixed", number(nested["difference"])),
    ]
    if best is not None:
        rows += [
            ("not a result: best on its own data", f"{best['value']:.3f}  {best['reading']}"),
            ("null: best of as many noise scores", f"{noise['mean']:.3f}  (95 %: {noise['p95']:.3f})"),
        ]
    print_table(f"tuned among {nested['candidates']} readings", ("", nested["measure"]), rows)


def number(estimate: Mapping[str, Any] | None) -> str:
    """An estimate with interval and n, without its method, which the JSON object has."""
    if estimate is None:
        return ""
    if estimate["estimate"] is None:
        return shown(estimate)
    text = shown({name: estimate[name] for name in ("estimate", "low", "high")})
    # Without spaces, so that no narrow column breaks it.
    return f"{text}  n={estimate['n']}"
