"""Settings of a warm start: the [warmstart] table."""

from typing import Literal

from pydantic import BaseModel, Field

from strop.config.judge import STRICT
from strop.config.paths import ShareOrPath


class WarmstartConfig(BaseModel):
    """How `strop warmstart` learns from demonstrations, before any judge is asked."""

    model_config = STRICT

    learn: Literal["all", "last"] = Field(
        "all", description='"all" assistant messages or the "last" one, where a message itself says nothing'
    )
    epochs: int = Field(3, ge=1, le=100000, description="times that every demonstration is seen, at most")
    batch: int = Field(16, ge=1, le=65536, description="demonstrations in an update")
    learning_rate: float = Field(2e-4, gt=0, le=1, description="AdamW's learning rate, at its highest")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "linear", description="how it goes down to 0 at the end of the last epoch"
    )
    warmup: float = Field(0.05, ge=0, le=0.9, description="share of the updates over which it rises first")
    max_grad_norm: float = Field(1.0, gt=0, description="the gradient is scaled down to this norm")
    heldout: ShareOrPath = Field(
        0.1,
        description="share of the scenarios kept back to measure the loss on, or a file of demonstrations",
    )
    every: int = Field(0, ge=0, description="updates between two measurements; 0: one after each epoch")
    patience: int = Field(
        2, ge=0, description="measurements in a row without a lower loss that end it early; 0: never"
    )
    micro_batch_tokens: int = Field(4096, ge=1, description="tokens in one forward pass; memory, not maths")
    seed: int = Field(0, ge=0, lt=2**63, description="root of all randomness of the warm start")
