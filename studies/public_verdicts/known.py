"""What is known of AgentProcessBench's judges over all four sets, worked out apart from this code.

Two of the sets, `gaia_dev` and `tau2`, may be absent. They are in the repository RUCBM/AgentProcessBench
at commit 0a42606b: `data/AnswerOnly/SET_final.jsonl` goes to `answers/`, `eval/results/JUDGE/SET__*.jsonl`
to `judge_results/JUDGE/SET.jsonl`.
"""

from dataclasses import dataclass

from strop.stats.intervals import Estimate
from studies.public_verdicts.agentprocessbench import Figures, Reading

PAIRS, TASKS = 736, 140
DIGITS = 0.0005
"""Half of the last place to which the figures are known."""

INTERVAL = 0.01
"""How far bounds of two bootstraps with different draws may lie apart here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Shares with their bounds where those are known: by final label, by mean step label, passes."""

    final: tuple[float, ...]
    steps: tuple[float, ...]
    passes_failed: float


KNOWN = {
    "Gemini-3-Flash-Preview": Known(
        final=(0.767, 0.738, 0.802), steps=(0.789, 0.758, 0.822), passes_failed=0.413
    ),
    "GPT-5.2": Known(final=(0.736, 0.702, 0.770), steps=(0.757, 0.712, 0.802), passes_failed=0.196),
    "DeepSeek-V3.2": Known(final=(0.700,), steps=(0.689,), passes_failed=0.399),
    "Qwen3-8B-Thinking": Known(final=(0.633,), steps=(0.639,), passes_failed=0.483),
    "Llama-3.3-70B-Instruct": Known(final=(0.589,), steps=(0.599,), passes_failed=0.698),
    "Qwen3-4B-Instruct-2507": Known(final=(0.576,), steps=(0.577,), passes_failed=0.678),
    "Llama-3.2-3B-Instruct": Known(final=(0.565, 0.529, 0.603), steps=(0.590,), passes_failed=0.616),
}
FEWER_STEPS = (0.412, 0.362, 0.467)
MORE_STEPS = (0.588,)
HUMAN_STEPS = (0.944,)


def differs(figures: Figures) -> list[str]:
    """Where the figures over all four sets differ from the known ones, by name; none: all agree."""
    nulls = {
        "fewer steps": agrees(figures.fewer, FEWER_STEPS),
        "more steps": agrees(figures.more, MORE_STEPS),
        "human steps": agrees(figures.human_steps, HUMAN_STEPS),
        "pairs": (figures.fewer.n, figures.fewer.clusters) == (PAIRS, TASKS),
    }
    judges = {row.judge: _agrees(row.stored, KNOWN[row.judge]) for row in figures.rows}
    return [name for name, agreed in (nulls | judges).items() if not agreed]


def _agrees(reading: Reading, known: Known) -> bool:
    return (
        agrees(reading.final, known.final)
        and agrees(reading.steps, known.steps)
        and agrees(reading.passes_failed, (known.passes_failed,))
    )


def agrees(estimate: Estimate, known: tuple[float, ...]) -> bool:
    """The estimate to the known digits, and its bounds nearly, where they are known."""
    share, *bounds = known
    if estimate.estimate is None or estimate.low is None or estimate.high is None:
        return False
    found = zip((estimate.low, estimate.high), bounds, strict=False)
    return abs(estimate.estimate - share) <= DIGITS + 1e-9 and all(abs(a - b) <= INTERVAL for a, b in found)
