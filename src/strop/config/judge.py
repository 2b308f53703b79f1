"""Settings of the judge: the embedded one, or any model behind an OpenAI-compatible endpoint."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from strop.config.paths import FilePath
from strop.errors import ConfigError

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class JudgeConfig(BaseModel):
    """Who compares the attempts of a group. Without `base_url`, the embedded judge does."""

    model_config = STRICT

    base_url: str | None = Field(
        None, pattern=r"^https?://", description="an http address that ends in /v1; none: the embedded judge"
    )
    model: str | None = Field(None, min_length=1, description="model name at that endpoint")
    api_key_env: str = Field(
        "STROP_JUDGE_API_KEY", min_length=1, description="environment variable that holds the key"
    )
    rubric: FilePath | None = Field(None, description="file that says what is good; none: the built-in one")
    adapter: FilePath | None = Field(
        None, description="LoRA adapter of the embedded judge; none: the one shipped"
    )
    temperature: float = Field(0.0, ge=0, le=2, description="sampling temperature of the judge")
    max_tokens: int = Field(1024, ge=1, le=131072, description="longest reply, in tokens")
    timeout_s: float = Field(120.0, gt=0, le=3600, description="seconds that one call may take")
    concurrency: int = Field(4, ge=1, le=1024, description="calls at the same time")
    max_failures_in_a_row: int = Field(
        5, ge=1, description="a run stops cleanly after so many groups without a verdict"
    )
    price_in: float = Field(0.0, ge=0, description="US dollars for a million prompt tokens")
    price_out: float = Field(0.0, ge=0, description="US dollars for a million reply tokens")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.base_url is None) != (self.model is None):
            raise ValueError("base_url and model belong together: give both, or none for the embedded judge")
        if self.base_url is not None and self.adapter is not None:
            raise ValueError("adapter is for the embedded judge only; leave out adapter or base_url")
        return self

    @property
    def embedded(self) -> bool:
        """Whether the embedded judge is meant."""
        return self.base_url is None


def judge_from_environment(environ: Mapping[str, str]) -> JudgeConfig | None:
    """The judge named by STROP_JUDGE_BASE_URL and STROP_JUDGE_MODEL; None where neither is set.

    The key is read later from STROP_JUDGE_API_KEY. Raises ConfigError where only one is set.
    """
    url, model = environ.get("STROP_JUDGE_BASE_URL"), environ.get("STROP_JUDGE_MODEL")
    if not url and not model:
        return None
    if not url or not model:
        raise ConfigError("STROP_JUDGE_BASE_URL and STROP_JUDGE_MODEL belong together: set both or neither")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"STROP_JUDGE_BASE_URL: {url!r} is no address that starts with http:// or https://")
    return JudgeConfig(base_url=url, model=model)
