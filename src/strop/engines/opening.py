"""Open an engine without loading torch before it is needed."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from strop.engine import Contrast, Engine
from strop.engines.local.memory import share_heap
from strop.engines.serving import Hears
from strop.errors import ModelError
from strop.inference.gateway import Gateway
from strop.inference.sampling import Tokenizer

if TYPE_CHECKING:
    from strop.engines.local.contrast import ContrastConfig
    from strop.engines.local.engine import LocalConfig
    from strop.engines.vllm.settings import VllmSettings

# An idle OpenMP thread that spins takes the core from the one it waits for.
_SPIN = ("GOMP_SPINCOUNT", "1000")
# oneDNN keeps a kernel for each shape it has met, 1024 of them by default: several hundred megabytes.
_KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "100")
# The decoding thread gives the interpreter away at every operation and waits this long to have it back
# while a request is served: five milliseconds by default, some hundred operations a pass.
_SWITCH_INTERVAL_S = 1e-4


class EmbeddedEngine(Engine, Protocol):
    """An engine that serves in this process: its gateway records, and it can serve further adapters."""

    @property
    def gateway(self) -> Gateway: ...

    @property
    def api_key(self) -> str: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def serve_adapter(self, name: str, adapter: Path | None, slots: int | None = None) -> None:
        """Serve another adapter over the same base model under a fixed name."""
        ...

    def listen(self, hears: Hears) -> None:
        """Tell `hears` what happens to whoever serves, from the beginning on."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        ...


def local(config: "LocalConfig") -> EmbeddedEngine:
    """The local engine. Raises ModelError where its libraries are not installed."""
    from strop.engines.local.engine import LocalEngine

    return LocalEngine(config)


def vllm(config: "LocalConfig", settings: "VllmSettings") -> EmbeddedEngine:
    """The engine that learns here while a vLLM server answers. Raises InputError where it cannot be had."""
    from strop.engines.local.engine import LocalEngine
    from strop.engines.vllm.serving import serving

    return LocalEngine(config, serving(settings))


class TextContrast(Contrast, Protocol):
    """A contrast with what makes rows of text: the models' tokenizer, and their room."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_length(self) -> int: ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        ...


@contextmanager
def contrast(
    config: "ContrastConfig", settings: "VllmSettings | None", proved: Callable[[Mapping[str, Any]], None]
) -> Iterator[TextContrast]:
    """Who reads a policy against references while the block lasts: this process, or a vLLM server.

    `proved` hears how a server's numbers were checked. Raises InputError where a server cannot be had.
    """
    if settings is None:
        from strop.engines.local.contrast import LocalContrast

        yield LocalContrast(config)
        return
    from strop.engines.vllm.contrast import VllmContrast

    reader = VllmContrast(config, settings, lambda proof: proved(proof.to_json()))
    try:
        yield reader
    finally:
        reader.close()


def tokenizer(model: str) -> Tokenizer:
    """A model's tokenizer, without its weights. Raises ModelError where it cannot be had."""
    from strop.engines.embedded import resolve_model
    from strop.engines.local.tokenizer import HFTokenizer

    return HFTokenizer.load(resolve_model(model))


def prepare() -> None:
    """Settings that must stand before torch is loaded. Raises ModelError where it cannot be."""
    os.environ.setdefault(*_SPIN)
    os.environ.setdefault(*_KERNELS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    share_heap()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import peft
        import torch
        import transformers
    except ImportError as error:
        raise ModelError(
            f"{error.name} is not installed; install strop with its extra: pip install 'strop[local]'"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(os.cpu_count() or 1)
    assert peft
