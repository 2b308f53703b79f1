"""Typed settings of a run and of a judge, from TOML files. An unknown key fails."""

from strop.config.judge import JudgeConfig, PriceConfig, judge_from_environment
from strop.config.reading import load, load_judge, load_warmstart
from strop.config.run import (
    EvaluationConfig,
    LoraConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    RunDirectory,
    TrainingConfig,
    WarmstartSettings,
)
from strop.config.warmstart import WarmstartConfig
from strop.config.writing import dump

__all__ = [
    "EvaluationConfig",
    "JudgeConfig",
    "LoraConfig",
    "ModelConfig",
    "PriceConfig",
    "RolloutConfig",
    "RunConfig",
    "RunDirectory",
    "TrainingConfig",
    "WarmstartConfig",
    "WarmstartSettings",
    "dump",
    "judge_from_environment",
    "load",
    "load_judge",
    "load_warmstart",
]
