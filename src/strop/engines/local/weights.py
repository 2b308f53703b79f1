"""Load a base model, put adapters on it, and fold an adapter into a copy that serves."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from strop.errors import ModelError

DType = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraShape:
    """A LoRA's size: `rank`, `alpha` (scale = alpha / rank), and which layers carry it."""

    rank: int = 8
    alpha: float = 16
    targets: Literal["all-linear"] | Sequence[str] = "all-linear"


def pick_device(asked: str) -> str:
    """The device to run on: what was asked for, or the best there is for "auto"."""
    if asked != "auto":
        return asked
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def pick_dtype(asked: DType, device: str) -> torch.dtype:
    """float32 or bfloat16; "auto" takes bfloat16 where the processor computes in it."""
    if asked == "auto":
        native = device != "cpu" or _has_bf16()
        return torch.bfloat16 if native else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[asked]


def _has_bf16() -> bool:
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def load_base(model: str | Path, dtype: torch.dtype, device: str) -> Any:
    """The bare causal LM, frozen, in eval mode. Raises ModelError where it cannot be read."""
    try:
        base = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise ModelError(f"{model}: cannot load this model: {str(error).splitlines()[0]}") from error
    return base.to(device).eval().requires_grad_(False)


def adapted(base: nn.Module, shape: LoraShape, adapter: Path | None, seed: int) -> PeftModel:
    """A PEFT model over the base's own tensors with two adapters, "policy" (trains) and "reference".

    Both start equal: from the adapter folder given, or from a fresh one whose B is zero. Adapter
    weights are float32 whatever the base computes in.
    """
    twin = share(base)
    if adapter is not None:
        model = _from_folder(twin, adapter)
    else:
        torch.manual_seed(seed)
        targets = shape.targets if isinstance(shape.targets, str) else list(shape.targets)
        config = LoraConfig(
            r=shape.rank, lora_alpha=shape.alpha, target_modules=targets, task_type="CAUSAL_LM"
        )
        model = get_peft_model(twin, config, adapter_name="policy")
    model.add_adapter("reference", model.peft_config["policy"])
    copy_adapter(model, "policy", "reference")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".policy." in name)
    model.set_adapter("policy")
    _let_autocast_choose(model)
    return model.eval()


def _from_folder(twin: Any, adapter: Path) -> PeftModel:
    if not (adapter / "adapter_config.json").is_file():
        raise ModelError(f"{adapter}: no adapter here (adapter_config.json is missing)")
    try:
        return PeftModel.from_pretrained(
            twin, str(adapter), adapter_name="policy", is_trainable=True, autocast_adapter_dtype=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{adapter}: cannot read this adapter: {str(error).splitlines()[0]}") from error


@torch.no_grad()
def set_reference(model: PeftModel, reference: Path | Literal["base"]) -> None:
    """Make the reference something else than the start: an adapter folder, or the bare base.

    Raises ModelError where the adapter cannot be read or has another shape than the policy's.
    """
    own = adapter_tensors(model, "reference")
    if reference == "base":
        for key, tensor in own.items():
            if "lora_B" in key:
                tensor.zero_()
        return
    try:
        tensors = load_file(Path(reference) / "adapter_model.safetensors")
    except (OSError, ValueError) as error:
        raise ModelError(f"{reference}: cannot read this adapter: {error}") from error
    if {k: v.shape for k, v in tensors.items()} != {k: v.shape for k, v in own.items()}:
        raise ModelError(
            f"{reference}: has another shape than the policy's adapter; rank and targets must agree"
        )
    for key, tensor in own.items():
        tensor.copy_(tensors[key])


def _let_autocast_choose(model: nn.Module) -> None:
    """PEFT would cast every activation to the adapter's float32 and back; autocast casts once."""
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.cast_input_dtype_enabled = False


def share(model: nn.Module) -> Any:
    """A structural copy of a module that holds the same parameter and buffer tensors."""
    memo = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo)


def adapter_tensors(model: nn.Module, name: str) -> dict[str, Tensor]:
    """One adapter's parameters by their name without the adapter's."""
    return {
        key.replace(f".{name}.", "."): parameter
        for key, parameter in model.named_parameters()
        if f".{name}." in key
    }


@torch.no_grad()
def copy_adapter(model: nn.Module, source: str, target: str) -> None:
    """Copy one adapter's weights over another's."""
    into = adapter_tensors(model, target)
    for key, tensor in adapter_tensors(model, source).items():
        into[key].copy_(tensor)


@torch.no_grad()
def folded(base: nn.Module, model: PeftModel, adapter: str) -> Any:
    """A serving copy: the base with the adapter added into its weights; all else is shared.

    The sum is made in float32 and rounded once to the base's dtype, from the unchanged base, so
    nothing drifts over versions.
    """
    serving = share(base)
    modules = dict(serving.named_modules())
    for name, layer in model.get_base_model().named_modules():
        if adapter in getattr(layer, "lora_A", {}):
            delta = layer.get_delta_weight(adapter).float()
            weight = modules[name].weight
            modules[name].weight = nn.Parameter(
                (weight.float() + delta).to(weight.dtype), requires_grad=False
            )
    return serving.eval()


def adapter_config(model: PeftModel) -> Mapping[str, Any]:
    """The policy adapter's PEFT configuration, naming no machine's folder."""
    return {**model.peft_config["policy"].to_dict(), "base_model_name_or_path": None, "inference_mode": True}


def save_adapter(model: PeftModel, path: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write the policy adapter in PEFT's own format (readable by PEFT and vLLM) into the folder `path`."""
    path.mkdir(parents=True, exist_ok=True)
    tensors = {
        k: t.detach().to(dtype).cpu().contiguous() for k, t in adapter_tensors(model, "policy").items()
    }
    save_file(tensors, path / "adapter_model.safetensors", metadata={"format": "pt"})
    text = json.dumps(adapter_config(model), indent=2, default=_jsonable, sort_keys=True)
    (path / "adapter_config.json").write_text(text + "\n")


def _jsonable(value: object) -> object:
    return sorted(value) if isinstance(value, set) else str(value)
