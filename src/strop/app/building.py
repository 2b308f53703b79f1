"""Build what a run needs from its config."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strop.config import RunConfig
from strop.engines.opening import EmbeddedEngine, local, prepare
from strop.rollout.limits import Limits
from strop.training.batch import AdvantageRule


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
    return AdvantageRule(scale=config.training.scale)


def engine(config: RunConfig) -> EmbeddedEngine:
    """The local engine with the policy of the run file on it. The caller closes it."""
    prepare()
    from strop.engines.local.engine import LocalConfig
    from strop.engines.local.learner import LearnerSettings
    from strop.engines.local.loss import LossSettings
    from strop.engines.local.weights import LoraShape

    training = config.training
    loss = LossSettings(
        clip_low=training.clip_low,
        clip_high=training.clip_high,
        dual_clip=training.dual_clip,
        kl_coef=training.kl_coef,
        kl=training.kl,
        tis_cap=training.tis_cap,
    )
    learner = LearnerSettings(
        learning_rate=training.learning_rate,
        max_grad_norm=training.max_grad_norm,
        micro_batch_tokens=training.micro_batch_tokens,
        loss=loss,
    )
    return local(
        LocalConfig(
            model=config.model.name,
            adapter=config.model.adapter,
            lora=LoraShape(
                rank=config.lora.rank,
                alpha=config.lora.alpha,
                targets=config.lora.targets,
                first_layer=config.lora.first_layer,
            ),
            learner=learner,
            dtype=config.model.dtype,
            device=config.model.device,
            slots=config.rollout.slots,
            max_length=config.model.max_length,
            seed=training.seed,
        )
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
