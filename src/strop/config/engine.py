"""Settings of who serves the policy: the [engine] table of a run file."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from strop.config.judge import STRICT, as_tuple
from strop.config.paths import FilePath

EngineKind = Literal["local", "vllm"]


class EngineConfig(BaseModel):
    """Who serves the policy to the agents; training is always done by this process."""

    model_config = STRICT

    kind: EngineKind = Field(
        "local",
        description='"local": this process, and a run repeats bit for bit; "vllm": a vLLM server, which gets '
        "every step's adapter",
    )
    python: FilePath | None = Field(
        None, description="the Python that has vLLM; none: the one that runs strop"
    )
    url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/]+(/v1)?/?$",
        description="a running vLLM server to use instead of starting one; VLLM_ALLOW_RUNTIME_LORA_UPDATING "
        "must be set there, and it must see `folder`",
    )
    args: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        (), description='further arguments of the vLLM server, such as ["--tensor-parallel-size", "2"]'
    )
    start_timeout_s: float = Field(
        600.0, gt=0, le=86400, description="seconds within which the server must answer after it is started"
    )
    max_restarts: int = Field(
        3, ge=0, le=1000, description="restarts in a row, with no answer between them, before the run stops"
    )
    folder: FilePath | None = Field(
        None, description="where adapters are put for the server to read; none: a temporary folder"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "local":
            for key, field in type(self).model_fields.items():
                if getattr(self, key) != field.default:
                    raise ValueError(f'{key} is for kind = "vllm"; set that, or leave {key} out')
        if self.url is not None and self.args:
            raise ValueError("args are for a server that strop starts; leave them out beside url")
        return self
