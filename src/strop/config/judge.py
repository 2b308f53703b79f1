"""Settings of the judge: the embedded one, or any model behind an OpenAI-compatible endpoint."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from strop.config.paths import FilePath, SwitchOrPath
from strop.errors import ConfigError

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
KEMENY_MOST = 8


def as_tuple(value: Any) -> Any:
    """A list as the tuple that strict settings want; anything else unchanged."""
    return tuple(value) if isinstance(value, list) else value


class PriceConfig(BaseModel):
    """What a model costs, in US dollars for a million tokens."""

    model_config = STRICT

    input: float = Field(ge=0, description="prompt tokens")
    output: float = Field(ge=0, description="reply tokens")
    cached_input: float | None = Field(
        None, ge=0, description="prompt tokens that the server had cached; none: as `input`"
    )


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

    mode: Literal["listwise", "pairwise", "pointwise", "logprob"] = Field(
        "listwise",
        description="what one call shows: the group, two attempts, or one attempt; "
        '"logprob": one, scored by the expected digit',
    )
    orders: int = Field(2, ge=1, le=64, description="calls a group, each second one in the reverse order")
    max_orders: int = Field(4, ge=1, le=64, description="calls a group whose orders disagree")
    escalate_below: float = Field(
        0.75, ge=0, le=1, description="reliability under which a group gets the further calls"
    )
    combine: Literal["mean", "borda", "kemeny"] = Field(
        "mean", description="how the calls of a group become one score an attempt"
    )
    most_at_once: int = Field(
        8, ge=2, le=1024, description="attempts in one call; larger groups are shown in overlapping subsets"
    )
    attempts: int = Field(2, ge=1, le=16, description="calls for one usable reply; a re-ask names the defect")
    max_tokens: int = Field(1024, ge=1, le=131072, description="longest reply, in tokens")
    concurrency: int = Field(8, ge=1, le=1024, description="calls at the same time")
    deadline_s: float = Field(
        600.0, gt=0, le=86400, description="seconds for one usable reply, waiting for a busy server included"
    )
    max_calls: int | None = Field(None, ge=1, description="no call is begun after so many; none: no limit")
    max_money: float | None = Field(
        None, gt=0, description="no call is begun after so many US dollars; needs a price; none: no limit"
    )

    reasoning: bool = Field(False, description="whether the judge sees the attempts' reasoning")
    images: Literal["placeholder", "pass"] = Field("placeholder", description="whether it sees images")
    volatile: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        (), description="regular expressions of what does not make two attempts differ, timestamps say"
    )
    repeats: Literal["once", "full"] = Field(
        "once", description="whether a long tool result that occurs again is written once and then named"
    )
    attempt_tokens: int = Field(
        16_000, ge=64, description="tokens of one attempt that are shown; more is cut from its middle"
    )
    group_tokens: int = Field(100_000, ge=256, description="tokens of one prompt")
    bytes_per_token: float = Field(3.0, gt=0, le=16, description="how tokens are estimated before a call")

    temperature: float = Field(0.0, ge=0, le=2, description="sampling temperature of the judge")
    timeout_s: float = Field(120.0, gt=0, le=3600, description="seconds that one request may take")
    patience_s: float = Field(
        300.0,
        ge=0,
        le=86400,
        description="how long a request is repeated while the server is down or refuses",
    )
    request: Mapping[str, Any] = Field(
        default_factory=dict, description="further fields of every request, as the endpoint defines them"
    )

    cache: SwitchOrPath | None = Field(
        None, description="good replies are kept in this folder; none: true for an endpoint, else false"
    )
    max_failures_in_a_row: int = Field(
        5, ge=0, description="stop cleanly after so many groups in a row without a verdict; 0: never"
    )
    prices: Mapping[str, PriceConfig] = Field(
        default_factory=dict, description="US dollars for a million tokens, a table a model"
    )

    @field_validator("volatile")
    @classmethod
    def _expressions(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for text in given:
            try:
                re.compile(text)
            except re.error as error:
                raise ValueError(f"{text!r} is no regular expression: {error}") from None
        return given

    @field_validator("request")
    @classmethod
    def _plain(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            json.dumps(given, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError("holds what JSON cannot: a date, a time, nan or inf") from None
        return given

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.base_url is None) != (self.model is None):
            raise ValueError("base_url and model belong together: give both, or none for the embedded judge")
        if self.base_url is not None and self.adapter is not None:
            raise ValueError("adapter is for the embedded judge only; leave out adapter or base_url")
        if self.max_money is not None and self.model is not None and self.model not in self.prices:
            raise ValueError(f'max_money needs the price of the model: add prices."{self.model}"')
        if self.combine == "kemeny" and self.most_at_once > KEMENY_MOST:
            raise ValueError(f"combine: an exact Kemeny order takes at most_at_once up to {KEMENY_MOST}")
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
