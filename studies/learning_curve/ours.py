"""Our side: the training loop over the local engine, with a reward in the judge's place."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from strop.config.losses import LOSSES
from strop.engines.local.engine import LocalConfig, LocalEngine
from strop.engines.local.learner import LearnerSettings
from strop.engines.local.losses.tokens import LossSettings
from strop.inference.sampling import SamplingParams
from strop.seeds import derive
from strop.store.run import Run
from strop.training.batch import AdvantageRule
from strop.training.loop import TrainPlan, train
from strop.trajectory.model import Group, Trajectory, Turn
from studies.learning_curve.task import ATTEMPTS, LENGTH, LETTERS, SPECIAL, Setting, prompts, reward


def engine_of(model: Path, adapter: Path, setting: Setting, seed: int) -> LocalEngine:
    """The engine with the study's loss and optimizer."""
    loss = LossSettings(
        surrogate=LOSSES["grpo"].surrogate,
        clip_low=setting.clip_low,
        clip_high=setting.clip_high,
        dual_clip=setting.dual_clip,
    )
    learner = LearnerSettings(
        learning_rate=setting.learning_rate,
        betas=setting.betas,
        max_grad_norm=setting.max_grad_norm,
        loss=loss,
    )
    return LocalEngine(
        LocalConfig(
            model=str(model), adapter=adapter, learner=learner, dtype="float32", device="cpu", seed=seed
        )
    )


class Attempts:
    """Attempts sampled from the served policy, without a chat's template: the prompt's letters alone."""

    def __init__(self, engine: LocalEngine, seed: int) -> None:
        self._engine, self._seed = engine, seed

    async def collect(self, step: int) -> list[Group]:
        """ATTEMPTS at each prompt of the step, in one cohort, so that a seed repeats."""
        asked = list(enumerate(prompts(step)))
        self._engine.sampler.open([f"{step}-{place}/{n}" for place, _ in asked for n in range(ATTEMPTS)])
        return list(
            await asyncio.gather(*(self._group(f"{step}-{place}", prompt) for place, prompt in asked))
        )

    async def score(self, groups: Sequence[Group], _step: int) -> list[Group]:
        """The reward of what each attempt said."""
        return [
            replace(group, trajectories=tuple(replace(t, score=_reward(t)) for t in group.trajectories))
            for group in groups
        ]

    async def _group(self, name: str, prompt: str) -> Group:
        members = await asyncio.gather(*(self._attempt(name, prompt, n) for n in range(ATTEMPTS)))
        return Group(group_id=name, scenario_id=name, trajectories=tuple(members))

    async def _attempt(self, name: str, prompt: str, attempt: int) -> Trajectory:
        ids = [len(SPECIAL) + LETTERS.index(letter) for letter in prompt]
        params = SamplingParams(max_tokens=LENGTH, seed=derive(self._seed, name, attempt))
        key, sampler = f"{name}/{attempt}", self._engine.sampler
        drawn = await sampler.sample(ids, params, model="policy", session=key)
        sampler.shut(key)
        turn = Turn(
            prompt_ids=tuple(ids),
            sampled_ids=drawn.ids,
            logprobs=drawn.logprobs,
            finish_reason=drawn.finish_reason,
            message_index=1,
            policy_version=drawn.version,
        )
        said = self._engine.decode([token for token in drawn.ids if token >= len(SPECIAL)])
        return Trajectory(
            trajectory_id=key,
            scenario_id=name,
            group_id=name,
            messages=({"role": "user", "content": prompt}, {"role": "assistant", "content": said}),
            turns=(turn,),
        )


async def rewards(model: Path, adapter: Path, folder: Path, setting: Setting, seed: int) -> list[float]:
    """Mean reward of each step under one seed."""
    engine = engine_of(model, adapter, setting, seed)
    try:
        attempts = Attempts(engine, seed)
        plan = TrainPlan(
            collect=attempts.collect,
            score=attempts.score,
            engine=engine,
            run=Run.create(folder, ""),
            steps=setting.steps,
            rule=AdvantageRule(scale="std"),
        )
        result = await train(plan)
    finally:
        engine.close()
    return [line["judge_score"]["mean"] for line in result.lines]


def _reward(attempt: Trajectory) -> float:
    return reward(str(attempt.messages[-1]["content"]))
