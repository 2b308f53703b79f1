"""The words of the page; numbers in them come from the results."""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

from strop.stats.intervals import Estimate
from studies.progress_advantage.cases import BETA, Row
from studies.progress_advantage.desk import Choice
from studies.progress_advantage.results import WITH_VALUE, Results
from studies.progress_advantage.scores import CENTRED, GRADE, LOGPROB, STEP_VALUE
from studies.progress_advantage.sweeps import CLIP
from studies.progress_advantage.uses import RANDOM, Use


def filled(text: str) -> str:
    """Wrapped at 110 characters, paragraphs kept apart."""
    paragraphs = (" ".join(p.split()) for p in text.strip().split("\n\n"))
    return "\n\n".join(fill(p, 110, break_on_hyphens=False) for p in paragraphs) + "\n"


INTRODUCTION = """Rewritten by `python -m studies.progress_advantage`. Worlds small enough to solve exactly:
{states} states and two that end the attempt (well, worth 1, or badly, worth 0), {actions} actions, at most
{steps} steps, a random reference policy. An action leads to one state, and with probability {chance:g} to
one by chance. The policy is the optimum of E[return] − β E[Σ log(π/π_ref)] by soft backward induction, β =
{beta:g} unless said otherwise. Each action is a word of 1 to 3 tokens, so that tokens, steps and attempts
are added up by the grader's own functions. {worlds} worlds a setting; intervals are 95 % bootstrap
intervals that resample worlds. Each world has one start: its attempts are one group.

A* is the optimal soft advantage Q* − V*; Q − V is the policy's own advantage under reward alone, what
Monte-Carlo completions estimate. Correlations over the steps taken and over attempts are exact, without
sampling; picks, orders and named steps come from 8 attempts a world."""

EXACT = """{n} random worlds in which every action and every last state pays N(0, 1), β = {beta:g}, and the
same worlds where each action surely leads to its likeliest state. Q and V come from evaluating the policy,
without the log-sum-exp that made it. Telescoping, as in reading rewards out of a DPO-trained model, takes
V*(s') for E[V*(s') | s, a]. In a stochastic world what differs is the luck of the transition: the grade
judges the decision and leaves the luck out; a return has it in. """

USES = """The optimum at β = {beta:g}, {n} attempts of its own in each world, success {success:.2f}. Sums of
scores over steps. `*`: the grade is above it with the whole interval of the paired difference; `†`: below.
"""

FAILURES = """A step is bad that gives away {bad:g} or more of the chance of success under best play.
{failures} failed attempts have one; {luckless} failed without, by luck or in a lost world, and are left
out. Share of failures whose culprit has the lowest score. """

SWEEPS = filled(
    """*step*: correlation of the grade with A*, and with Q − V, over steps taken. *attempt*: correlation of
the sum of grades with success over attempts at one start; *centred − grade* and *grade − log-prob*: paired
differences of that. *with steps*: correlation of the sum with the attempt's number of steps. *picked*:
share of the gap from a random pick to the oracle that the best of 8 closes. In the figure correlations
below 0 are drawn at 0."""
)

TITLES: Mapping[str, tuple[str, str]] = {
    "chance": (
        "How much chance decides",
        filled("Left in the figure: every action leads where it leads. Right: to a row of probabilities."),
    ),
    "policy gradient": (
        "Stopped early: policy gradient",
        filled(
            """Exact gradient ascent on the regularised objective from the reference, rate 10. The gradient
of a step is weighted by how often its state is visited and its action taken. Placed in the figure by the
share of the objective that is reached."""
        ),
    ),
    "natural gradient": (
        "Stopped early: natural policy gradient",
        filled("The same objective, π ∝ π exp(A) each step: every state and action learns at one pace."),
    ),
    "beta": (
        "Beta of the training",
        filled(
            """Trained, and graded, with another β. The identity holds at each; what its sum is worth does
not stay. Grading with another β than the training's multiplies all grades by one number: no order, pick,
AUROC or named step changes."""
        ),
    ),
    "clipping": (
        "Clipping alone, no KL",
        filled(
            f"""Exact updates by the clipped objective with clip {CLIP:g}, no KL term. A* is that of β =
{BETA:g}; there is no β of the training."""
        ),
    ),
    "reference": (
        "A reference that is not the one trained from",
        filled(
            """The reference read has other logits than the one trained from: noise times N(0, 1) is added,
fixed for each state and action; or all actions are as likely; or it is an unrelated random policy."""
        ),
    ),
    "noise": (
        "Noise in the policy",
        filled(
            """The policy is the optimum but for noise in its logits, drawn for each step, state and action;
attempts are its own."""
        ),
    ),
    "author": (
        "Attempts by others",
        filled(f"The optimum at β = {BETA:g} grades attempts that another policy made."),
    ),
}

CLIPPING = """Clip {clip:g} allows a ratio in [{low:g}, {high:g}] to the policy before the update, for which
clip²/2 = {half:g} nats is the small-step estimate of its KL. It bounds one update, about (an action past
the clip still moves as its rivals lose), and not the way from the reference. *likest*: the β, among those
of the table above, whose optimal advantage the log-ratio resembles most. """

AGGREGATORS = """{n} worlds, the optimum at β = {beta:g}. Only sums of tokens are the advantage of the step.
"Aggregate of ratios" subtracts token by token, "difference of aggregates" aggregates each model first. """

LIMITS = (
    "## What the theory does not carry\n\n"
    + "\n".join(
        fill("- " + " ".join(text.split()), 110, subsequent_indent="  ", break_on_hyphens=False)
        for text in (
            """The grade is the advantage of the decision at the optimum. No theorem says that its sum
predicts success: the luck of the world and the value of the start are not in it.""",
            """Aggregation by mean, minimum, maximum or last has no theorem. Where one of them does better
above, mind that in these worlds an attempt ends with the step that decides it.""",
            """Centring is no theorem of better prediction: it makes the expectation 0, which the optimum's
own sum does not need, and pays off where the log-ratio holds movement that reward did not ask for.""",
            """Clipping alone has no β and no finite optimum; its log-ratio is an advantage only up to an
unknown scale that shrinks as training goes on.""",
            """These are tables with random entries, trained on exact expectations. A language model shares
parameters between states, is trained on sampled attempts, and its reward may not be what is wanted. How
large each departure is in a real pair of checkpoints is not known from here.""",
        )
    )
    + "\n"
)


def summary(results: Results) -> Iterable[str]:
    """What was found, a line each."""
    findings = (_identity, _telescoping, _uses, _luck, _optimum, _beta, _clip, _departures, _centring)
    for finding in findings:
        yield _bullet(finding(results))


def desk(choices: Sequence[Choice]) -> str:
    """How to read the desk's table, with four attempts."""
    grade = {(c.state, c.action): c.grade for c in choices}
    look = grade["new request", "look up"]
    unseen = grade["new request", "refund"]
    first = look + grade["order is refundable", "refund"]
    second = look + grade["order is not refundable", "decline"]
    return filled(
        f"""The clerk refunds readily; 60 of 100 orders are refundable and a look-up fails in 10 of 100
cases. Three steps at most. The second and third state are shown one step later than the first.

Looking up and then doing right is worth {first:+.3f} where the order turns out refundable and {second:+.3f}
where not, and both end well: to decline, the clerk had to leave old habits, which V* counts as a cost. A
refund without looking up is worth {unseen:+.3f} whether it ends well or badly: it was the same decision. As
a reward those sums are wrong; as marks for decisions they are right."""
    )


def _bullet(text: str) -> str:
    words = "- " + " ".join(text.split())
    return fill(words, 110, subsequent_indent="  ", break_on_hyphens=False)


def _identity(results: Results) -> str:
    errors = max(results.stochastic.advantage, results.deterministic.advantage)
    return f"""β · (log π* − log π_ref) is the optimal advantage in stochastic and deterministic worlds
alike (largest error {errors:.0e}), its mean under π* is β KL, and centred it is 0."""


def _telescoping(results: Results) -> str:
    share = results.stochastic.unexplained
    return f"""Rewards cannot be read out of it by telescoping where chance plays: Var(return − Σ grades) is
{shown(share)} of Var(return). In the deterministic twins it is 0 but for rounding."""


def _uses(results: Results) -> str:
    stochastic = results.uses[0]
    rows = {
        "success of the pick of 8": stochastic.select,
        "pairs of one start in the right order": stochastic.order,
        "AUROC over all": stochastic.predict,
    }
    parts = [
        f"{name} {shown(use.results[GRADE])} "
        f"(log-prob {shown(use.results[LOGPROB])}, random {_bare(use.results[RANDOM])})"
        for name, use in rows.items()
    ]
    first = stochastic.first.results
    beaten = all(_beats(use) for use in (*rows.values(), stochastic.first))
    claim = "above every null" if beaten else "not above every null, see the tables"
    return f"""With the optimum's own attempts in stochastic worlds the grade is {claim}:
{"; ".join(parts)}; first bad step {shown(first[GRADE])} (uniform guess {shown(first["uniform guess"])}). At
naming the costliest step it stays behind exact step values (difference
{shown(stochastic.costliest.differences[STEP_VALUE])}). Adding the value of the start, which nobody has,
would lift the AUROC to {shown(stochastic.predict.results[WITH_VALUE])}."""


def _beats(use: Use) -> bool:
    others = (
        d for name, d in use.differences.items() if name not in (CENTRED, STEP_VALUE, WITH_VALUE, "oracle")
    )
    return all(d.low is not None and d.low > 0 for d in others)


def _luck(results: Results) -> str:
    first, *_, last = results.sweeps["chance"]
    return f"""Its sum correlates with success {_bare(first.attempt[GRADE])} without chance and
{shown(last.attempt[GRADE])} where all is chance, though each step's grade is exact in both: the rest is
luck."""


def _optimum(results: Results) -> str:
    first, *_, last = results.sweeps["policy gradient"]
    natural = results.sweeps["natural gradient"][0]
    return f"""Far from the optimum the grade is a poorer advantage: correlation with A* {shown(first.step)}
after one policy-gradient step ({first.at:.2f} of the objective), 1 at the optimum. One natural-gradient
step has {shown(natural.step)} with A* and {shown(natural.plain)} with Q − V: what costs is less the
distance than that policy gradient learns rare states and actions late. With success the sum correlates
{shown(first.attempt[GRADE])} then and {shown(last.attempt[GRADE])} at the optimum."""


def _beta(results: Results) -> str:
    rows = results.sweeps["beta"]
    least = rows[0]
    lost = [row.label for row in rows if (row.above.low or 0.0) <= 0]
    return f"""A policy trained with little β is so sure that few bad decisions are left to see: at β =
{least.label} the sum correlates {shown(least.attempt[GRADE])} with success and {shown(least.length[GRADE])}
with the number of steps, while A* is exact at every step. At β = {", ".join(lost)} it is not above the
policy's log-prob."""


def _clip(results: Results) -> str:
    first, last = results.drifts[0], results.drifts[-1]
    row = results.sweeps["clipping"][-1]
    return f"""Clipping alone leaves a correlation with some A* of {shown(first.likeness)} after
{first.updates} update (likest β {first.likest_beta:g}) and {shown(last.likeness)} after {last.updates}
(likest β {last.likest_beta:g}), but the sum then correlates {shown(row.attempt[GRADE])} with success and
{shown(row.length[GRADE])} with the number of steps. An attempt's KL to the reference grows to
{shown(last.from_reference, 2)} nats; clip²/2, the estimate for one update of one state, is
{CLIP**2 / 2:g}."""


def _departures(results: Results) -> str:
    noise = _by_label(results.sweeps["noise"], "0.5")
    wrong = results.sweeps["reference"]
    uniform, unrelated = _by_label(wrong, "uniform"), _by_label(wrong, "unrelated")
    return f"""Against the wrong reference the correlation with A* falls from 1 to {shown(uniform.step)}
(uniform) and {shown(unrelated.step)} (unrelated), and the best of 8 closes
{shown(unrelated.picked[GRADE], 2)} of the gap with the latter. Noise of 0.5 in the policy's logits, beside
a standard deviation of the log-ratio of {shown(results.spread, 2)}, leaves {shown(noise.step)}."""


def _centring(results: Results) -> str:
    # The optimum stands in most tables; it counts once.
    rows = {_numbers(row): row for some in results.sweeps.values() for row in some}
    helped = [row for row in rows.values() if (row.centring.low or 0.0) > 0]
    hurt = [row for row in rows.values() if (row.centring.high or 0.0) < 0]
    exact = results.sweeps["chance"][0]
    unrelated = _by_label(results.sweeps["reference"], "unrelated")
    sure = [row.label for row in results.sweeps["beta"] if (row.centring.low or 0.0) > 0]
    return f"""Centring is an insurance, not a gain. It costs most in deterministic worlds
({_bare(exact.attempt[GRADE])} to {shown(exact.attempt[CENTRED])} with success) and pays where the policy is
nearly certain (β = {", ".join(sure) or "none of those tried"}) or has moved for other reasons
({shown(unrelated.attempt[GRADE])} to {shown(unrelated.attempt[CENTRED])} with an unrelated reference, where
the plain sum correlates {shown(unrelated.length[GRADE])} with the number of steps). Of {len(rows)} settings
it is better in {len(helped)} and worse in {len(hurt)}, with the whole interval."""


def _numbers(row: Row) -> tuple[float, float]:
    return round(row.success.estimate or 0.0, 6), round(row.centring.estimate or 0.0, 6)


def _by_label(rows: Sequence[Row], label: str) -> Row:
    return next(row for row in rows if row.label == label)


def _bare(e: Estimate) -> str:
    return f"{e.estimate:.3f}"


def shown(e: Estimate, digits: int = 3) -> str:
    """Estimate and interval, or why there is none; no interval where all worlds have the same number."""
    if e.estimate is None or e.low is None or e.high is None:
        return e.method
    if "do not differ" in e.method:
        return f"{e.estimate:.{digits}f}"
    return f"{e.estimate:.{digits}f} [{e.low:.{digits}f}, {e.high:.{digits}f}]"
