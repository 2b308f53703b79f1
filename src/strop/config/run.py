"""Settings of a training run, one class a table of the TOML file."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from strop.config.engine import EngineConfig
from strop.config.judge import STRICT, JudgeConfig, as_tuple
from strop.config.losses import LOSSES, Aggregation, LossName, Off, Scale
from strop.config.paths import AgentName, CountOrPath, DemoOrPath, FilePath, ModelName, Words
from strop.config.warmstart import WarmstartConfig

Dtype = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda", "mps"]


class ModelConfig(BaseModel):
    """The model that is trained."""

    model_config = STRICT

    name: ModelName = Field("smollm2", min_length=1, description='"smollm2", a model folder or a hub name')
    dtype: Dtype = Field("auto", description="number format of the weights in memory")
    device: Device = Field("auto", description="where the model runs")
    adapter: FilePath | None = Field(
        None, description="LoRA adapter to start from; it is then the reference. None: the bare model"
    )
    max_length: int = Field(
        2048, ge=16, le=1048576, description="tokens a conversation may have, replies included"
    )
    checkpointing: bool = Field(
        False, description="compute layers again backwards instead of keeping them: less memory, slower"
    )


class LoraConfig(BaseModel):
    """Shape of the LoRA adapter; with a warm start the adapter's own shape counts."""

    model_config = STRICT

    rank: int = Field(16, ge=1, le=1024, description="rank of the update")
    alpha: float = Field(32.0, gt=0, le=4096, description="the update is scaled by alpha / rank")
    targets: Annotated[Literal["all-linear"] | Words, BeforeValidator(as_tuple)] = Field(
        "all-linear", description='"all-linear" or a list of module names'
    )
    first_layer: int = Field(
        0, ge=0, description="train the blocks from this one on; the fewer, the faster and the less memory"
    )


class RolloutConfig(BaseModel):
    """Which agent attempts which scenarios, how often and within which limits."""

    model_config = STRICT

    scenarios: DemoOrPath = Field(description='JSONL file of scenarios, or "demo:order_desk"')
    agent: AgentName = Field(
        min_length=1,
        description='"file.py:function", "module:function", "demo:order_desk", or a command as a list',
    )
    attempts: int = Field(6, ge=2, le=1024, description="attempts at each scenario, compared with each other")
    groups_per_step: int = Field(8, ge=1, le=4096, description="scenarios in a training step")
    temperature: float = Field(1.0, gt=0, le=2, description="sampling temperature of the attempts")
    max_tokens: int = Field(256, ge=1, le=131072, description="longest reply of one model call, in tokens")
    max_turns: int = Field(16, ge=1, le=1000, description="model calls in one attempt")
    deadline_s: float = Field(
        300.0, gt=0, le=86400, description="seconds that one attempt may take, once it has a slot"
    )
    slots: int = Field(16, ge=1, le=4096, description="attempts decoded at the same time")


class TrainingConfig(BaseModel):
    """How the policy learns from the scores; where the loss decides a default, that of "grpo" is shown."""

    model_config = STRICT

    steps: int = Field(12, ge=1, description="training steps")
    loss: LossName = Field("grpo", description="loss by the name of its paper; docs/losses.md compares them")
    aggregation: Aggregation = Field(
        "token_mean", description="how token losses become one number; by the loss"
    )
    scale: Scale = Field("std", description="how a group's scores are scaled; by the loss")
    leave_one_out: bool = Field(
        False, description="whether an attempt is held against the mean of the others, without itself"
    )
    noise_floor: float = Field(
        0.0, ge=0, le=1, description="a group whose scores spread less is not scaled up to a full update"
    )
    judge_noise: bool = Field(
        True, description="whether the noise that the judge's repeated calls show raises that floor"
    )
    updates_per_step: int = Field(
        1, ge=1, description="optimizer steps that share a training step's attempts, each on a part of them"
    )
    learning_rate: float = Field(1e-4, gt=0, le=1, description="AdamW's learning rate, at its highest")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="how it goes down to 0 at the end of the run"
    )
    warmup: int = Field(0, ge=0, description="optimizer steps over which it rises first")
    clip_low: float = Field(
        0.2, gt=0, le=1, description="the probability ratio is clipped at 1 - clip_low; by the loss"
    )
    clip_high: float = Field(0.28, gt=0, le=100, description="and at 1 + clip_high; by the loss")
    dual_clip: Annotated[float, Field(gt=1)] | Off = Field(
        3.0, description='bound of the loss of a token that did badly, in advantages, or "off"; by the loss'
    )
    kl_coef: float = Field(0.0, ge=0, le=10, description="weight of the KL divergence to the reference")
    kl: Literal["k1", "k2", "k3"] = Field("k3", description="estimator of that divergence")
    max_grad_norm: float = Field(1.0, gt=0, description="the gradient is scaled down to this norm")
    tis_cap: Annotated[float, Field(ge=1)] | Off = Field(
        2.0, description='cap of the importance weight of learner against sampler, or "off"'
    )
    micro_batch_tokens: int = Field(4096, ge=1, description="tokens in one forward pass; memory, not maths")
    seed: int = Field(0, ge=0, lt=2**63, description="root of all randomness of the run")
    overlap: bool | None = Field(
        None,
        description="whether a group is judged while others still roll out; none: true for an endpoint, "
        "false for the embedded judge",
    )
    max_staleness: int = Field(
        0,
        ge=0,
        le=64,
        description="steps rolled out ahead, by a policy up to so many versions old; 0: none, a run repeats",
    )
    keep_checkpoints: int = Field(
        2, ge=1, description="newest checkpoints that are kept; the latest and the best always are"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_loss(cls, given: Any) -> Any:
        """What the run file leaves out is as the loss's paper has it."""
        name = given.get("loss", "grpo") if isinstance(given, dict) else None
        loss = LOSSES.get(name) if isinstance(name, str) else None  # type: ignore[call-overload]
        return given if loss is None else {**loss.settings(), **given}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.dual_clip != "off" and self.loss == "cispo":
            raise ValueError(
                'dual_clip does not fit loss = "cispo", whose weight is bounded already; leave it out'
            )
        if self.dual_clip != "off" and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(
                f"dual_clip = {self.dual_clip} is not above 1 + clip_high = {1 + self.clip_high:g}, "
                "and would clip what clip_high lets pass; raise it"
            )
        if self.max_staleness and self.tis_cap == "off":
            raise ValueError(
                f'max_staleness = {self.max_staleness} needs the correction that tis_cap = "off" leaves out; '
                "give tis_cap a number"
            )
        if self.schedule != "constant" and self.warmup >= self.steps * self.updates_per_step:
            raise ValueError(
                f"warmup = {self.warmup} leaves nothing of the {self.steps * self.updates_per_step} "
                "optimizer steps to go down in; lower it"
            )
        return self


class EvaluationConfig(BaseModel):
    """Held-out scenarios that training never sees."""

    model_config = STRICT

    heldout: CountOrPath = Field(0, description="file of held-out scenarios, or how many to keep back")
    attempts: int = Field(1, ge=1, le=1024, description="attempts at each held-out scenario")
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="sampling temperature of these attempts, 0 for greedy; none: the agent's own",
    )
    every: int = Field(
        0, ge=0, description="steps between two evaluations during training; 0: before and after it only"
    )
    patience: int = Field(
        0, ge=0, description="evaluations in a row without a gain that end the training; 0: none do"
    )
    compared_groups: int = Field(
        24,
        ge=0,
        description="held-out scenarios on which the judge compares the policy with the one before training",
    )
    judged_groups: int = Field(
        24, ge=0, description="held-out scenarios whose attempts are judged, to audit both graders"
    )
    judged_attempts: int = Field(5, ge=2, le=1024, description="attempts at each of those")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.every and self.heldout == 0:
            raise ValueError(f"every = {self.every}, but heldout is 0; keep scenarios back to evaluate on")
        if self.patience and not self.every:
            raise ValueError(
                f"patience = {self.patience}, but every is 0; say after how many steps to evaluate"
            )
        return self


class RunDirectory(BaseModel):
    """Where the run is written."""

    model_config = STRICT

    directory: FilePath = Field(
        Path("runs/run"), description="folder of the run; in a run file: runs/ and the file's name"
    )


class RunConfig(BaseModel):
    """All settings of a training run. Every table but [rollout] may be left out."""

    model_config = STRICT

    model: ModelConfig = Field(default_factory=ModelConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    rollout: RolloutConfig
    judge: JudgeConfig = Field(default_factory=JudgeConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    warmstart: WarmstartConfig = Field(default_factory=WarmstartConfig)
    run: RunDirectory = Field(default_factory=RunDirectory)

    @property
    def overlapping(self) -> bool:
        """Whether groups are judged while others are still rolled out."""
        overlap = self.training.overlap
        return not self.judge.embedded if overlap is None else overlap


class WarmstartSettings(BaseModel):
    """What a warm start reads of a run file."""

    model_config = STRICT

    model: ModelConfig = Field(default_factory=ModelConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    warmstart: WarmstartConfig = Field(default_factory=WarmstartConfig)
