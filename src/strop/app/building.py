"""Build what a run needs from its config."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from strop.config import LoraConfig, RunConfig, WarmstartSettings
from strop.config.engine import EngineConfig
from strop.config.losses import LOSSES
from strop.engines.opening import EmbeddedEngine, local, prepare, vllm
from strop.rollout.limits import Limits
from strop.training.batch import AdvantageRule

if TYPE_CHECKING:
    from strop.engines.local.engine import LocalConfig
    from strop.engines.local.learner import LearnerSettings
    from strop.engines.local.weights import LoraShape
    from strop.engines.vllm.settings import VllmSettings


def limits(config: RunConfig) -> Limits:
    """How much an attempt may take."""
    rollout = config.rollout
    return Limits(
        attempts=rollout.attempts,
        deadline_s=rollout.deadline_s,
        max_turns=rollout.max_turns,
        temperature=rollout.temperature,
        max_tokens=rollout.max_tokens,
    )


def rule(config: RunConfig) -> AdvantageRule:
    """How scores become advantages."""
    training = config.training
    return AdvantageRule(
        scale=training.scale,
        leave_one_out=training.leave_one_out,
        noise_floor=training.noise_floor,
        judge_noise=training.judge_noise,
    )


def engine(config: RunConfig) -> EmbeddedEngine:
    """The engine that the run file asks for, with its policy on it. The caller closes it."""
    prepare()
    from strop.engines.local.engine import LocalConfig

    how = LocalConfig(
        model=config.model.name,
        adapter=config.model.adapter,
        lora=lora_shape(config.lora),
        learner=learner(config),
        dtype=config.model.dtype,
        device=config.model.device,
        slots=config.rollout.slots,
        max_length=config.model.max_length,
        seed=config.training.seed,
    )
    return opened(how, config.engine)


def opened(how: "LocalConfig", engine: EngineConfig) -> EmbeddedEngine:
    """The engine on a model, with who serves as `engine` says. Raises InputError where that cannot be had."""
    return local(how) if engine.kind == "local" else vllm(how, vllm_settings(engine))


def vllm_settings(config: EngineConfig) -> "VllmSettings":
    """Which vLLM serves, and how it is started or found."""
    from strop.engines.vllm.settings import VllmSettings

    return VllmSettings(
        python=config.python or Path(sys.executable),
        url=config.url,
        args=config.args,
        start_timeout_s=config.start_timeout_s,
        max_restarts=config.max_restarts,
        folder=config.folder,
    )


def warmstart_engine(settings: WarmstartSettings, start: Path | None, updates: int) -> EmbeddedEngine:
    """The local engine with a policy that is to learn from demonstrations. The caller closes it."""
    from strop.engines.local.engine import LocalConfig
    from strop.engines.local.learner import LearnerSettings
    from strop.engines.local.learning_rate import Schedule

    how, model = settings.warmstart, settings.model
    schedule = Schedule(shape=how.schedule, warmup=round(how.warmup * updates), updates=updates)
    return local(
        LocalConfig(
            model=model.name,
            adapter=start,
            lora=lora_shape(settings.lora),
            learner=LearnerSettings(
                learning_rate=how.learning_rate,
                schedule=schedule,
                max_grad_norm=how.max_grad_norm,
                micro_batch_tokens=how.micro_batch_tokens,
                checkpointing=model.checkpointing,
            ),
            dtype=model.dtype,
            device=model.device,
            slots=1,
            max_length=model.max_length,
            seed=how.seed,
        )
    )


def lora_shape(config: LoraConfig) -> "LoraShape":
    """Rank, scale and places of a fresh adapter."""
    from strop.engines.local.weights import LoraShape

    return LoraShape(
        rank=config.rank, alpha=config.alpha, targets=config.targets, first_layer=config.first_layer
    )


def learner(config: RunConfig) -> "LearnerSettings":
    """How the local engine learns: the loss by its name, the optimizer and its rate."""
    from strop.engines.local.learner import LearnerSettings
    from strop.engines.local.learning_rate import Schedule
    from strop.engines.local.losses.tokens import LossSettings

    training = config.training
    loss = LossSettings(
        surrogate=LOSSES[training.loss].surrogate,
        aggregation=training.aggregation,
        clip_low=training.clip_low,
        clip_high=training.clip_high,
        dual_clip=None if training.dual_clip == "off" else training.dual_clip,
        kl_coef=training.kl_coef,
        kl=training.kl,
        tis_cap=None if training.tis_cap == "off" else training.tis_cap,
        length=config.model.max_length,
    )
    updates = training.steps * training.updates_per_step
    return LearnerSettings(
        learning_rate=training.learning_rate,
        schedule=Schedule(shape=training.schedule, warmup=training.warmup, updates=updates),
        max_grad_norm=training.max_grad_norm,
        micro_batch_tokens=training.micro_batch_tokens,
        checkpointing=config.model.checkpointing,
        loss=loss,
    )


@contextmanager
def plain_engine(
    model: str, policy: Path | None = None, reference: Path | None = None
) -> Iterator[EmbeddedEngine]:
    """The local engine on a model with an adapter or none, while the block lasts, for no training."""
    prepare()
    from strop.engines.local.engine import LocalConfig

    engine = local(
        LocalConfig(model=model, adapter=policy, reference=reference or ("base" if policy else None))
    )
    try:
        yield engine
    finally:
        engine.close()
