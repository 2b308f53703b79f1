"""What a model is made of, by its config.json and the headers of its weights; no weight is loaded."""

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

from strop.engines.embedded import cached_model
from strop.errors import ModelError, in_one_line

EMBEDDED = "smollm2"
EMBEDDED_CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "dtype": "float32",
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
"""Of SmolLM2-135M, so that a machine which has not fetched it yet can be asked."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv"),
    "inner": ("intermediate_size", "n_inner", "ffn_dim"),
    "vocabulary": ("vocab_size",),
}
"""What families call the same thing in config.json."""
HEADS_AND_EMBEDDINGS = re.compile(r"embed|lm_head|wte|wpe|experts|\bhead\b")
LAYER = re.compile(r"\.(\d+)\.")
BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4}


class Linear(NamedTuple):
    """A linear layer that could carry a LoRA: its own name, its block, inputs and outputs."""

    name: str
    layer: int
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a causal LM. `inner` is the MLP's width, `parameters` all weights, `stored` bytes in files.

    `counted` says whether the parameters are those of the files' headers, or worked out from the config, as
    for a plain decoder with a gated MLP.
    """

    kind: str
    activation: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    parameters: int
    stored: int
    counted: bool
    linears: tuple[Linear, ...]

    @property
    def queries(self) -> int:
        """Numbers of a token's queries in a layer."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Numbers of a token's keys in a layer, or of its values."""
        return self.kv_heads * self.head_dim

    @property
    def adapted(self) -> int:
        """Weights of all linear layers."""
        return sum(linear.inputs * linear.outputs for linear in self.linears)


def shape_of(model: str) -> Shape | None:
    """The shape of "smollm2", a folder or a hub name; None where a hub name was not fetched yet.

    Raises ModelError for a folder whose config.json cannot be read or does not say what is needed.
    """
    folder = folder_of(model)
    if folder is not None:
        return shape_in(folder)
    return embedded_shape() if model == EMBEDDED else None


def embedded_shape() -> Shape:
    """The shape of the embedded model, whether or not it is here."""
    return _shape(EMBEDDED_CONFIG, {}, EMBEDDED)


def folder_of(model: str) -> Path | None:
    """Where the model lies on this machine; None where it would have to be fetched."""
    if model == EMBEDDED:
        return cached_model()
    folder = Path(model).expanduser()
    return folder if folder.is_dir() else _fetched(model)


def shape_in(folder: Path) -> Shape:
    """The shape of the model in a folder. Raises ModelError as `shape_of` does."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: cannot read config.json: {in_one_line(error)}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{folder}: config.json holds no table")
    return _shape(config, _headers(folder), str(folder))


def hub_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which transformers keeps what it fetched from a hub."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    home = environ.get("HF_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache/huggingface") / "hub"


def _fetched(model: str) -> Path | None:
    snapshots = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    return found[-1].parent if found else None


def _headers(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Tensors of all safetensors files of a folder by name, each with `dtype` and `shape`."""
    tensors: dict[str, Mapping[str, Any]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(min(length, file.stat().st_size)))
        except (OSError, ValueError, struct.error) as error:
            raise ModelError(f"{file}: is no whole safetensors file: {in_one_line(error)}") from error
        tensors |= {name: entry for name, entry in header.items() if name != "__metadata__"}
    return tensors


def _shape(config: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Any]], where: str) -> Shape:
    text = config.get("text_config", config)
    sizes = {name: _size(text, keys) for name, keys in NAMES.items()}
    lacking = [name for name in ("layers", "width", "heads", "vocabulary") if not sizes[name]]
    if lacking:
        raise ModelError(f"{where}: config.json gives no {' and no '.join(lacking)}; is it a causal LM's?")
    layers, width, heads = (sizes[name] or 0 for name in ("layers", "width", "heads"))
    kv_heads, inner = sizes["kv_heads"] or heads, sizes["inner"] or 4 * width
    head_dim = text.get("head_dim") or width // heads
    plain = _plain(layers, width, heads * head_dim, kv_heads * head_dim, inner)
    linears = tuple(sorted(list(_linears(tensors)) or plain, key=_place))
    vocabulary = sizes["vocabulary"] or 0
    parameters, stored = _counted(tensors)
    if not parameters:
        ends = 1 if text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)) else 2
        norms = (2 * layers + 1) * width
        parameters = sum(one.inputs * one.outputs for one in linears) + ends * vocabulary * width + norms
        stored = parameters * (2 if _sixteen_bits(config) else 4)
    return Shape(
        kind=str(text.get("model_type", config.get("model_type", ""))),
        activation=str(text.get("hidden_act", "")),
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inner=inner,
        vocabulary=vocabulary,
        parameters=parameters,
        stored=stored,
        counted=bool(tensors),
        linears=linears,
    )


def _size(config: Mapping[str, Any], keys: Sequence[str]) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)


def _sixteen_bits(config: Mapping[str, Any]) -> bool:
    return str(config.get("dtype", config.get("torch_dtype"))) in ("bfloat16", "float16")


def _counted(tensors: Mapping[str, Mapping[str, Any]]) -> tuple[int, int]:
    """Numbers in all tensors, and bytes; a format that is not known counts a byte a number."""
    numbers = {name: prod(entry["shape"]) for name, entry in tensors.items()}
    stored = sum(count * BYTES.get(tensors[name]["dtype"], 1) for name, count in numbers.items())
    return sum(numbers.values()), stored


def _linears(tensors: Mapping[str, Mapping[str, Any]]) -> Iterator[Linear]:
    """Matrices of the blocks, by the files' headers; experts carry no LoRA."""
    for name, entry in tensors.items():
        place = LAYER.search(name)
        matrix = name.endswith(".weight") and len(entry["shape"]) == 2
        if place and matrix and not HEADS_AND_EMBEDDINGS.search(name):
            outputs, inputs = entry["shape"]
            yield Linear(name.split(".")[-2], int(place[1]), inputs, outputs)


def _place(linear: Linear) -> tuple[int, str]:
    return linear.layer, linear.name


Gated = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def _plain(layers: int, width: int, queries: int, keys: int, inner: int) -> Iterator[Linear]:
    """The linear layers of a plain decoder with a gated MLP."""
    sizes: dict[Gated, tuple[int, int]] = {
        "q_proj": (width, queries),
        "k_proj": (width, keys),
        "v_proj": (width, keys),
        "o_proj": (queries, width),
        "gate_proj": (width, inner),
        "up_proj": (width, inner),
        "down_proj": (inner, width),
    }
    for layer in range(layers):
        for name, (inputs, outputs) in sizes.items():
            yield Linear(name, layer, inputs, outputs)
