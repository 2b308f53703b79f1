"""What the training loop asks of a whole run: the attempts of a step, and the judge's scores of them."""

from collections.abc import Sequence

from strop.app import evaluation
from strop.app.stage import Rollout, Stage, collected, members
from strop.app.step_judging import StepJudging
from strop.judge.forecast import forecast
from strop.training.loop import part
from strop.trajectory.model import Group


class Steps:
    """The steps of one run. Where stages overlap, a group is judged as soon as its attempts have ended."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._judging: dict[int, StepJudging] = {}

    async def attempts(self, step: int) -> list[Group]:
        """Attempts at the scenarios of a step by the policy that is served."""
        judging = self._judging[step] = StepJudging(self._stage.bench, part(step))
        what = Rollout(
            part=part(step),
            attempts=self._stage.config.rollout.attempts,
            told="rollout",
            step=step,
            on_group=(lambda group: judging.begin([group])) if self._stage.config.overlapping else None,
        )
        try:
            return await collected(self._stage, self._stage.source.training(step), what)
        except BaseException:
            await self._judging.pop(step).abandon()
            raise

    async def scores(self, groups: Sequence[Group], step: int) -> list[Group]:
        """The groups as they were judged. Verdicts are kept also where the judge ends the run."""
        judging = self._judging.pop(step)
        judging.begin(groups)
        await judging.ended()
        judged, found = judging.applied(groups), judging.verdicts
        run = self._stage.run
        run.write_verdicts(part(step), [found[g.group_id].to_json() for g in groups if g.group_id in found])
        run.write_trajectories(part(step), members(judged))
        judging.raise_error()
        self._forecast(step)
        return judged

    def _forecast(self, step: int) -> None:
        """What judging the steps that are left will take, by what it took so far."""
        config = self._stage.config
        left = (config.training.steps - step - 1) * config.rollout.groups_per_step
        expected = forecast(self._stage.bench.judge.ledger, left + evaluation.groups_left(self._stage, step))
        self._stage.run.append_event("judge_forecast", step=step, **expected.to_json())
