"""The study's page and its JSON."""

from dataclasses import asdict
from typing import Any

from studies.order_desk import prose
from studies.order_desk.results import (
    BESIDE,
    GAINS,
    TOGETHER,
    VALUES,
    WITHOUT_KL,
    WRONG,
    Results,
)
from studies.order_desk.tables import (
    USES,
    by_training,
    centred,
    default,
    estimates,
    gains,
    shown,
    sign,
    table,
    tuned,
)

DEAR = (BESIDE, GAINS, TOGETHER, VALUES)
ASKED = {
    "predict": "AUROC of success",
    "select": "truth of the attempt picked",
    "attribute": "first wrong step named",
}


def to_markdown(results: Results) -> str:
    """The page."""
    uses = [one.warm for one in results.measured]
    seeds = _seeds(results)
    parts = [
        prose.introduction(results),
        prose.summary(results),
        "![the three uses beside their baselines](order-desk.svg)\n",
        _attempts(results),
        f"## Will it succeed?\n\n{prose.PREDICT}\n{by_training([u.predict for u in uses], seeds)}",
        f"## Best of {results.setting.attempts}\n\n{prose.select(results)}\n"
        + gains([u.select for u in uses], seeds),
        f"## Which step broke it?\n\n{prose.attribute(results)}\n"
        + by_training([u.attribute for u in uses], seeds),
        _not_won(results),
        _other_attempts(results),
        _wrong(results),
        _with_kl(results),
        _dear(results),
        f"## A tuned reading\n\n{prose.TUNED}\n{tuned(uses, seeds)}",
        prose.LIMITS,
    ]
    return "\n".join(parts)


def to_json(results: Results) -> dict[str, Any]:
    """Everything that the verbs printed, by training and set of attempts."""
    return {"name": "order_desk", **asdict(results)}


def _seeds(results: Results) -> list[str]:
    return [f"seed {one.policy.seed}" for one in results.measured]


def _attempts(results: Results) -> str:
    rows = [[name, shown(e), str(e["n"]), str(e["clusters"])] for name, e in results.truths.items()]
    header = ["attempts by", "share that ended right", "attempts", "scenarios"]
    words = prose.attempts(results)
    return f"## The attempts\n\n{words}\n{table(header, rows)}"


def _not_won(results: Results) -> str:
    lines = []
    for use in USES:
        words = prose.held([getattr(one.warm, use) for one in results.measured])
        lines.append(f"- **{use}**: {words}")
    return f"## Where it does not win\n\n{prose.NOT_WON}\n" + "\n".join(lines) + "\n"


def _other_attempts(results: Results) -> str:
    rows = []
    for title, part in (("the policy's own", "own"), ("half of each", "mixed")):
        for use in USES:
            found = [getattr(getattr(one, part), use) for one in results.measured]
            cells = [shown(default(one)) for one in found]
            rows.append([title, ASKED[use], *cells, prose.held(found)])
    header = ["attempts", "measure", *_seeds(results), "not surely beaten in every training"]
    praise = [
        [f"seed {one.policy.seed}", *(f"{shown(e)}, n = {e['n']}" for e in one.praised.values())]
        for one in results.measured
    ]
    return (
        f"## Attempts of the trained policies\n\n{prose.OTHERS}\n{table(header, rows)}\n{prose.PRAISED}\n"
        + table(["", "attempts of the warm start", "the policy's own"], praise)
    )


def _wrong(results: Results) -> str:
    rows = []
    for use in USES:
        for one in results.measured:
            right, wrong = getattr(one.warm, use), getattr(one.wrong, use)
            rows.append([ASKED[use], f"seed {one.policy.seed}", *_beside(right, wrong, WRONG)])
    header = ["measure", "", "trained from", "bare model", "difference", "bare model, centred"]
    return f"## The wrong reference\n\n{prose.WRONG_WORDS}\n{table(header, rows)}"


def _beside(right: Any, wrong: Any, name: str) -> list[str]:
    return [
        shown(default(right)),
        shown(default(wrong)),
        shown(right["differences"].get(name)),
        shown(centred(wrong)),
    ]


def _with_kl(results: Results) -> str:
    rows = []
    for name, one in results.with_kl.items():
        for use in USES:
            found = getattr(one, use)
            row = [ASKED[use], name, shown(default(found)), shown(estimates(found).get(WITHOUT_KL))]
            row += [shown(found["differences"].get(WITHOUT_KL)), prose.held([found])]
            rows.append(row)
    header = ["measure", "", "with KL", "without", "difference", "with KL: not surely beaten"]
    return f"## Trained with a KL\n\n{prose.with_kl(results)}\n{table(header, rows)}"


def _dear(results: Results) -> str:
    rows = []
    for use in USES:
        found = [getattr(one.dear, use) for one in results.measured]
        names = [found[0]["default"], *(n for n in found[0]["nulls"] if n.startswith(DEAR))]
        rows += [
            [ASKED[use], name, *(shown(estimates(one)[name]) + sign(one, name) for one in found)]
            for name in names
        ]
    calls = [[name, f"{good} of {every}"] for name, (good, every) in results.judged.items()]
    header = ["measure", "score", *_seeds(results)]
    return f"## Dear baselines\n\n{prose.values(results)}\n{table(header, rows)}\n{prose.JUDGES}\n" + table(
        ["the judge is shown", "usable verdicts"], calls
    )
