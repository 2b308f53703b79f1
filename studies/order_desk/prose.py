"""The page's words; every number in them is a result."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from studies.order_desk.policies import KL
from studies.order_desk.results import WARM, Results
from studies.order_desk.setting import FIRST
from studies.order_desk.tables import centred, default, estimates, shown, unbeaten

WIDTH = 112
MANY = 8


def filled(*paragraphs: str) -> str:
    """Paragraphs at the page's width."""
    return (
        "\n\n".join(fill(" ".join(one.split()), WIDTH, break_on_hyphens=False) for one in paragraphs) + "\n"
    )


def introduction(results: Results) -> str:
    """What was done."""
    s = results.setting
    return "# The step grade at the order desk\n\n" + filled(
        f"""Rewritten by `python -m studies.order_desk`. {len(results.measured)} policies are trained as
        `strop demo` trains them (SmolLM2 with 135 million parameters, five steps, an embedded judge instead
        of a reward), from seeds {_seeds(results)}. That training is by clipping alone: its KL weight is 0,
        and with one update a step the clip never binds. Each is read against the warm start that it was
        trained from: the grade of a step is the sum of log π − log π_ref over its tokens.""",
        f"""The desk is a stochastic world: one lookup in five times out. Attempts are at {s.scenarios}
        held-out scenarios (from held-out number {FIRST} on, which no choice was made on), {s.attempts} each
        at temperature 1. Every table is what `strop select`, `strop predict` and `strop attribute` print:
        95 % intervals resample scenarios; a star marks what the default surely beats (the paired
        difference's whole interval above 0), a dagger what surely beats it. Readings of the same log-ratios
        without a mark are shown and not claimed. The desk's own check is the truth, which no training has
        seen.""",
    )


def summary(results: Results) -> str:
    """The findings, for better and worse."""
    measured = results.measured
    warm = [one.warm for one in measured]
    known = results.truths[WARM]
    picks = [one.select for one in warm]
    shares = [found["best_of"]["oracle_gain_closed"][found["default"]] for found in picks]
    lines = [
        f"Attempts of the warm start (n = {known['n']} at {known['clusters']} scenarios), graded by the "
        f"trained policies: AUROC of success {_each([default(one.predict) for one in warm])}.",
        f"Best of {results.setting.attempts} gains {_each([_gain(found) for found in picks])} over a random "
        f"pick, a share of {_each(shares, 2)} of the oracle's gain.",
        f"The first wrong step is named in {_each([default(one.attribute) for one in warm])} of failures.",
        *(_rivals(results, use) for use in ("predict", "select", "attribute")),
        f"With the bare model as reference: AUROC {_each([default(one.wrong.predict) for one in measured])}; "
        f"gain over a random pick {_each([_gain(one.wrong.select) for one in measured])}; "
        f"first wrong step {_each([default(one.wrong.attribute) for one in measured])}.",
        f"With the bare model as reference, but centred: AUROC "
        f"{_each([centred(one.wrong.predict) for one in measured])}; first wrong step "
        f"{_each([centred(one.wrong.attribute) for one in measured])}.",
        f"On the trained policies' own attempts, which seldom fail: "
        f"AUROC {_each([default(one.own.predict) for one in measured])}; "
        f"gain over a random pick {_each([_gain(one.own.select) for one in measured])}.",
    ]
    return "## In short\n\n" + "\n".join(_item(line) for line in lines) + "\n"


def attempts(results: Results) -> str:
    """Who attempts."""
    return filled(
        f"""A trained policy errs seldom, so that its own attempts leave little to tell. The main tables are
        of the {results.truths[WARM]["n"]} attempts of the warm start, which errs often; each training
        grades these same attempts, so that columns differ by the training alone. The trained policies' own
        follow further down."""
    )


PREDICT = filled(
    """AUROC over all attempts. Across scenarios the theory promises nothing: the sum of advantages says how
    well an attempt did for its scenario. The implicit reward of a whole run is the same number by another
    argument; so it ties, and its mark means nothing."""
)


def select(results: Results) -> str:
    """How to read the table of best of N."""
    return filled(
        f"""The attempt with the highest score among a scenario's {results.setting.attempts}, exactly: ties
        share the pick. Gain: mean truth of the pick less that of a random one; beside it the share of what
        an oracle gains. Marks are of the paired difference to the default."""
    )


def attribute(results: Results) -> str:
    """How to read the table of first wrong steps."""
    n = default(results.measured[0].warm.attribute)["n"]
    best = [one.warm.attribute["constants"]["best_crossfitted"] for one in results.measured]
    return filled(
        f"""Over the {n} failed attempts: whether the step with the lowest score is the first wrong one;
        ties share the guess. "Uniform guess" is chance by length. Always the same step, chosen on other
        scenarios: {shown(best[0])}."""
    )


NOT_WON = filled(
    """Scores that the default does not surely beat in every training, on the warm start's attempts (in how
    many it does not)."""
)

OTHERS = filled(
    """"Half of each": the first half of a scenario's attempts by the warm start, the other by the policy.""",
    """The grade says what training made likelier. What the policy still does wrong is mostly what training
    did not make less likely, or made likelier with the rest, such as to decline without a status after
    lookups that timed out. Such a step has a high grade, and picking the highest among the policy's own
    attempts picks it.""",
)

PRAISED = filled(
    """Share of failed attempts whose first wrong step has a grade above 0, that is, whose wrong step training
    made likelier:"""
)

WRONG_WORDS = filled(
    """The same policies and attempts, with the untuned model as reference instead of the warm start. The
    log-ratio then holds all that the warm start taught, the form of calls first of all, and not only what
    reward changed. The difference is of the default, right reference less wrong one. Centring takes the KL
    off at every token, and with it what was taught everywhere alike."""
)

TUNED = filled(
    """The best of many aggregators, spans and centrings, chosen on other scenarios; beside it what choosing
    on the data that it is measured on would have printed, and the best of as many noise scores. AUROCs here
    are inside folds."""
)


def with_kl(results: Results) -> str:
    """Which training is which."""
    trained = ", ".join(results.with_kl) or "none"
    return filled(
        f"""The theory is of a KL-regularised optimum; the trainings above have no KL. These ({trained}) are
        the same training with the k3 estimate of the KL to the warm start at weight {KL:g} in the loss, on
        the warm start's attempts. Five steps are far from any optimum, with the KL or without."""
    )


def values(results: Results) -> str:
    """What the dear baselines know."""
    s = results.setting
    n = default(results.measured[0].dear.predict)["n"]
    return filled(
        f"""On the first {s.valued} scenarios ({n} attempts of the warm start). Math-Shepherd's baseline:
        after each step the desk is set back to that point and the warm start completes {s.completions}
        times; the value is the share that succeeds, the advantage its change. It is less a rival than a
        ceiling, at attempts times steps times completions of model runs: it asks the desk's own check, its
        value after the last step is the truth itself, and after a decision nearly so."""
    )


JUDGES = filled(
    """The embedded judge was taught to compare groups and cannot be asked of one attempt alone: it goes on
    to list attempts that are not there, and such a reply is refused. So its pointwise score is of each
    attempt in a group of two, beside a scripted one that looks the order up and decides nothing."""
)

LIMITS = "## What this does not say\n\n" + filled(
    """One small model, one small world, six kinds of case, and trainings that differ in their seed. The
    warm start errs mostly in one way: it refunds what should be declined, and training mends just that. A
    grade that was trained on the decision is then a good detector of it; where errors are of many kinds
    less is to be expected. The judge was taught the rules of this desk: it says nothing of judges
    elsewhere."""
)


def held(found: Sequence[Mapping[str, Any]]) -> str:
    """Baselines that are not surely beaten in every training, in words; short where they are many."""
    counts, trainings = unbeaten(found), len(found)
    beaten = [name for name in found[0]["differences"] if name not in counts]
    better = [f"{name} ({lost} of {trainings})" for name, (_, lost) in counts.items() if lost]
    if not counts:
        return f"none: all {len(beaten)} are surely beaten in every training"
    if len(counts) > MANY:
        words = f"all {len(counts)}" if not beaten else f"all but {', '.join(beaten)}"
        return f"{words}; surely better: {', '.join(better) or 'none'}"
    named = [f"{name} ({count} of {trainings})" for name, (count, _) in counts.items()]
    return "; ".join(named) + (f". Surely better: {', '.join(better)}" if better else "")


def _rivals(results: Results, use: str) -> str:
    found = [getattr(one.warm, use) for one in results.measured]
    counts = unbeaten(found)
    names = [name for name in found[0]["nulls"] if name not in counts]
    words = f"{use}: {len(names)} of {len(found[0]['nulls'])} baselines are surely beaten in every training"
    best = max(found[0]["nulls"], key=lambda name: _mean(found, name))
    return f"{words}; the best of them all is {best}, {_each([estimates(one)[best] for one in found])}."


def _mean(found: Sequence[Mapping[str, Any]], name: str) -> float:
    known = [estimates(one)[name]["estimate"] for one in found if name in estimates(one)]
    return float("-inf") if not known or None in known else sum(known) / len(known)


def _gain(found: Mapping[str, Any]) -> Any:
    return found["best_of"]["gain_over_random"][found["default"]]


def _each(found: Sequence[Mapping[str, Any] | None], digits: int = 3) -> str:
    return ", ".join(shown(e, digits) for e in found)


def _item(line: str) -> str:
    return fill(f"- {line}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _seeds(results: Results) -> str:
    return ", ".join(str(one.policy.seed) for one in results.measured)
