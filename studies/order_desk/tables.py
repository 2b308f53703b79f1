"""Tables of uses: a row a score, a column a training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from studies.order_desk.uses import Use

Found = Mapping[str, Any]
"""What one verb printed."""
USES = ("predict", "select", "attribute")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shown(estimate: Mapping[str, Any] | None, digits: int = 3) -> str:
    """The estimate with its interval."""
    if estimate is None or estimate["estimate"] is None:
        return "none"
    value, low, high = (estimate[key] for key in ("estimate", "low", "high"))
    if low is None:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def estimates(found: Found) -> dict[str, Any]:
    """Every score's estimate by name, results before nulls."""
    return {**found["results"], **found["nulls"]}


def default(found: Found) -> Mapping[str, Any]:
    """The estimate of the reading that was fixed in advance."""
    chosen: Mapping[str, Any] = found["results"][found["default"]]
    return chosen


def centred(found: Found) -> Mapping[str, Any] | None:
    """The estimate of the default's centred reading, where there is one."""
    return next((e for name, e in found["results"].items() if "centred" in name), None)


def sign(found: Found, name: str) -> str:
    """A star where the default is surely above, a dagger where it is surely below."""
    gap = found["differences"].get(name)
    if gap is None or gap["low"] is None:
        return ""
    return " *" if gap["low"] > 0 else " †" if gap["high"] < 0 else ""


def by_training(found: Sequence[Found], seeds: Sequence[str]) -> str:
    """One use: every score beside the default."""
    names = list(dict.fromkeys(name for one in found for name in estimates(one)))
    rows = [
        [_named(found[0], name), *(shown(estimates(one).get(name)) + sign(one, name) for one in found)]
        for name in names
    ]
    return table(["score", *seeds], rows)


def gains(found: Sequence[Found], seeds: Sequence[str]) -> str:
    """Best of N: the gain over a random pick, and the share of the oracle's gain."""
    names = list(dict.fromkeys(name for one in found for name in estimates(one) if name != "random"))
    rows = []
    for name in names:
        row = [_named(found[0], name)]
        for one in found:
            curve = one["best_of"]
            row += [
                shown(curve["gain_over_random"].get(name)) + sign(one, name),
                shown(curve["oracle_gain_closed"].get(name), 2) if name != "oracle" else "1",
            ]
        rows.append(row)
    header = [word for seed in seeds for word in (f"{seed}: gain", f"{seed}: share of the gap")]
    return table(["picked by", *header], rows)


def unbeaten(found: Sequence[Found]) -> dict[str, tuple[int, int]]:
    """Nulls that the default does not surely beat in every training: in how many it does not, and in how
    many the null is surely better."""
    names = list(dict.fromkeys(name for one in found for name in one["differences"]))
    counts = {}
    for name in names:
        gaps = [one["differences"][name] for one in found if name in one["differences"]]
        held = sum(gap["low"] is None or gap["low"] <= 0 for gap in gaps)
        lost = sum(gap["high"] is not None and gap["high"] < 0 for gap in gaps)
        if held:
            counts[name] = (held, lost)
    return counts


def tuned(uses: Sequence[Use], seeds: Sequence[str]) -> str:
    """The reading chosen inside cross-validation beside the default."""
    rows = []
    for use in USES:
        for seed, one in zip(seeds, uses, strict=True):
            nested = getattr(one, use)["nested"]
            best = nested["best_in_sample"]
            noise = nested["best_noise_in_sample"]
            rows.append(
                [
                    use,
                    seed,
                    shown(nested["default"]),
                    shown(nested["tuned"]),
                    shown(nested["difference"]),
                    "none" if best is None else f"{best['value']:.3f} ({best['reading']})",
                    "none" if noise["p95"] is None else f"{noise['mean']:.3f} ({noise['p95']:.3f})",
                ]
            )
    header = ["use", "", "default", "tuned out of fold", "difference", "best in sample", "best noise (95th)"]
    return table(header, rows)


def _named(found: Found, name: str) -> str:
    return f"**{name}**" if name == found["default"] else name
