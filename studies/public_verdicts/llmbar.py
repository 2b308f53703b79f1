"""LLMBar (Zeng et al. 2024): 419 pairs of answers, each judged in both orders by two models, five prompts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from strop.seeds import generator
from strop.stats.agreement import RatedGroup, pairwise_agreement
from strop.stats.intervals import RESAMPLES, Estimate
from strop.stats.kappa import cohen_kappa
from strop.stats.swaps import SwapCheck, SwappedPair, swap_check
from studies.public_verdicts.sources import read_json

SUBSETS = (
    "Natural",
    "Adversarial_GPTInst",
    "Adversarial_GPTOut",
    "Adversarial_Manual",
    "Adversarial_Neighbor",
)
MODELS = ("GPT-4", "ChatGPT")
PROMPTS = ("Vanilla", "CoT", "Metrics_Reference", "Swap_CoT", "Rating")
POINTWISE = "Rating"
"""This prompt rates each answer alone, so that there is no order; its ties are stored as one win each."""

NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
ITEM = {"1": 0, "2": 1, None: None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One judge on one subset; see `recoded_kappas` and `label_kappas`."""

    subset: str
    model: str
    prompt: str
    check: SwapCheck
    recoded_kappas: tuple[float | None, float | None]
    label_kappas: tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nulls:
    """What an order that knows nothing of the instruction gets on one subset, ties half."""

    subset: str
    longer: Estimate
    shorter: Estimate


def rows(folder: Path, resamples: int = RESAMPLES) -> Iterator[Row]:
    """Every judge on every subset."""
    for subset in SUBSETS:
        for model in MODELS:
            for prompt in PROMPTS:
                pairs = judged(folder, subset, model, prompt)
                rng = generator(0, "llmbar", subset, model, prompt)
                yield Row(
                    subset=subset,
                    model=model,
                    prompt=prompt,
                    check=swap_check(pairs, rng, resamples),
                    recoded_kappas=recoded_kappas(pairs),
                    label_kappas=label_kappas(pairs),
                )


def judged(folder: Path, subset: str, model: str, prompt: str) -> list[SwappedPair]:
    """The stored choices; the last stage's where a prompt has several."""
    stored = read_json(folder / subset / f"judge_{model}_{prompt}.json")
    return [_pair(item) for item in stored]


def _pair(item: Mapping[str, Any]) -> SwappedPair:
    last = item["results"][-1]
    return SwappedPair(
        forward=ITEM[last["swap = False"]["winner"]],
        backward=ITEM[last["swap = True"]["winner"]],
        truth=item["label"] - 1,
    )


def recoded_kappas(pairs: Sequence[SwappedPair]) -> tuple[float | None, float | None]:
    """Kappas of a choice coded 1 for the first answer and 0 for any other, against a label coded 1 or 2.

    That is what `kappa_False` and `kappa_True` in the authors' files hold: the codes of the two sides do
    not fit, so it is no agreement with the label. Made only to show that the same verdicts are read.
    """
    labels = [0 if p.truth is None else p.truth + 1 for p in pairs]
    forward, backward = ([int(c == 0) for c in side] for side in _sides(pairs))
    return cohen_kappa(forward, labels), cohen_kappa(backward, labels)


def label_kappas(pairs: Sequence[SwappedPair]) -> tuple[float | None, float | None]:
    """Kappas of choice and label, both coded alike, for each of the two orders."""
    truths = [p.truth for p in pairs]
    forward, backward = _sides(pairs)
    return cohen_kappa(forward, truths), cohen_kappa(backward, truths)


def _sides(pairs: Sequence[SwappedPair]) -> tuple[list[int | None], list[int | None]]:
    return [p.forward for p in pairs], [p.backward for p in pairs]


def stated(folder: Path, row: Row) -> Mapping[str, Any] | None:
    """The authors' own statistics of that judge on that subset, None where they gave none."""
    path = folder / row.subset / f"stat_{row.model}_{row.prompt}.json"
    return read_json(path) if path.exists() else None


def made_alike(row: Row) -> dict[str, Any]:
    """The row in the words of the authors' statistics, percentages and all."""
    check, (forward, backward) = row.check, row.recoded_kappas
    both = None if forward is None or backward is None else (forward + backward) / 2
    return {
        "correct_False": _count(check.forward),
        "correct_True": _count(check.backward),
        "correct_average": f"{100 * (check.accuracy.estimate or 0)}%",
        "correct_both": _count(check.both_right),
        "equal": _count(check.consistency),
        "kappa_False": forward,
        "kappa_True": backward,
        "kappa_average": both,
        "kappa_agreement": check.kappa.estimate,
    }


def _count(share: Estimate) -> str:
    part = share.estimate or 0.0
    return f"{round(part * share.n)} / {share.n} = {100 * part}%"


def same_figures(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether all entries agree: counts exactly, decimals to rounding of the last place."""
    return ours.keys() == theirs.keys() and all(
        isclose(a, b, rel_tol=1e-12) for key in ours for a, b in _numbers(ours[key], theirs[key])
    )


def _numbers(ours: Any, theirs: Any) -> Iterator[tuple[float, float]]:
    if not isinstance(theirs, str):
        yield float("nan") if ours is None else ours, theirs
        return
    for a, b in zip(re.findall(NUMBER, ours), re.findall(NUMBER, theirs), strict=True):
        yield float(a), float(b)


def nulls(folder: Path, resamples: int = RESAMPLES) -> Iterator[Nulls]:
    """The length of the answers as a judge, in characters."""
    for subset in SUBSETS:
        items = read_json(folder / subset / "dataset.json")
        rng = generator(0, "llmbar", subset, "nulls")
        yield Nulls(
            subset=subset,
            longer=pairwise_agreement([_by_length(item, 1) for item in items], rng, resamples),
            shorter=pairwise_agreement([_by_length(item, -1) for item in items], rng, resamples),
        )


def _by_length(item: Mapping[str, Any], sign: int) -> RatedGroup:
    lengths = [float(sign * len(item[key])) for key in ("output_1", "output_2")]
    return RatedGroup(scores=lengths, truths=[float(item["label"] == 1), float(item["label"] == 2)])
