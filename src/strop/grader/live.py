"""Grade a reply while it is being answered, as `strop.grader.grade` grades it afterwards."""

import asyncio
import threading
from dataclasses import replace

from strop.engine import Engine
from strop.errors import StropError, in_one_line
from strop.grader.grade import grade
from strop.grader.guard import Rule, step_score
from strop.inference.guarding import Assessment
from strop.trajectory.model import Message, Trajectory, Turn


class EngineGuard:
    """Implements `strop.inference.guarding.Guard`: two passes over prompt and reply, in a thread.

    The same tokens as in a recorded run, so the same grade but for rounding. What cannot be graded is held.
    """

    def __init__(self, engine: Engine, rule: Rule) -> None:
        self.rule = rule
        self._engine = engine
        self._one_at_a_time = threading.Lock()

    async def assess(self, turn: Turn, reply: Message) -> Assessment | None:
        """None where the reply calls none of the rule's tools."""
        named = [call["function"]["name"] for call in reply.get("tool_calls") or ()]
        tools = tuple(name for name in named if name in self.rule.tools)
        if not tools:
            return None
        score, problem = await asyncio.to_thread(self._score, turn)
        limit = self.rule.threshold.value
        low = score is None or self.rule.low(score)
        return Assessment(
            tools=tools,
            grade=score,
            threshold=limit if limit > float("-inf") else None,
            low=low,
            reason=problem or f"Its grade {score:.3g} is {'under' if low else 'not under'} {limit:.3g}",
        )

    def _score(self, turn: Turn) -> tuple[float | None, str | None]:
        """The step's score, or None and why there is none."""
        alone = Trajectory(
            trajectory_id="live",
            scenario_id="live",
            group_id="live",
            messages=({"role": "assistant"},),
            turns=(replace(turn, message_index=0),),
        )
        try:
            with self._one_at_a_time:
                (graded,) = grade([alone], self._engine, beta=self.rule.beta)
        except StropError as error:
            return None, f"It could not be graded: {in_one_line(error)}"
        if not graded.steps:
            return None, f"It could not be graded: {graded.ungraded}"
        return step_score(graded.steps[0], self.rule.score), None
