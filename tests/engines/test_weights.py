"""Loading, adapters in PEFT's own format, and serving copies."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from local_model import SIZES, write_model
from strop.engines.local.weights import (
    LoraShape,
    adapted,
    adapter_tensors,
    folded,
    load_base,
    pick_device,
    pick_dtype,
    save_adapter,
    set_reference,
    share,
)
from strop.errors import ModelError

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # PEFT 0.19 uses a name that transformers 5.24 renames.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
]
IDS = torch.tensor([[3, 9, 2, 7, 7, 1, 30, 4]])
SHAPE = LoraShape(rank=4, alpha=8)


def bare() -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval().requires_grad_(False)


def moved(base: Any, shape: LoraShape = SHAPE, adapter: Path | None = None) -> PeftModel:
    """A policy that training took far from its start."""
    model = adapted(base, shape, adapter, seed=0)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for tensor in adapter_tensors(model, "policy").values():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
    return model


@torch.no_grad()
def logits(model: Any) -> Tensor:
    out: Tensor = model(input_ids=IDS).logits
    return out


def test_a_fresh_adapter_changes_nothing_and_both_adapters_are_equal() -> None:
    base = bare()
    model = adapted(base, SHAPE, None, seed=0)
    torch.testing.assert_close(logits(model), logits(base), rtol=0, atol=0)
    policy, reference = adapter_tensors(model, "policy"), adapter_tensors(model, "reference")
    assert policy.keys() == reference.keys()
    assert len(policy) == 2 * 7 * 2  # A and B of q, k, v, o, gate, up, down in two layers
    for key, tensor in policy.items():
        torch.testing.assert_close(tensor, reference[key], rtol=0, atol=0)
        assert tensor.data_ptr() != reference[key].data_ptr()


def test_the_base_is_shared_and_never_touched() -> None:
    base = bare()
    before = logits(base)
    model = moved(base)
    inside = model.get_base_model().model.layers[0].self_attn.q_proj.base_layer.weight
    assert inside.data_ptr() == base.model.layers[0].self_attn.q_proj.weight.data_ptr()
    serving = folded(base, model, "policy")
    serving.set_attn_implementation("eager")
    torch.testing.assert_close(logits(base), before, rtol=0, atol=0)
    assert base.config._attn_implementation == "sdpa"
    assert serving.model.norm.weight.data_ptr() == base.model.norm.weight.data_ptr()


def test_a_folded_copy_computes_what_the_adapter_does() -> None:
    base = bare()
    model = moved(base)
    torch.testing.assert_close(logits(folded(base, model, "policy")), logits(model), rtol=0, atol=1e-4)
    torch.testing.assert_close(logits(folded(base, model, "reference")), logits(base), rtol=0, atol=1e-6)
    assert float((logits(model) - logits(base)).abs().max()) > 0.1


def test_a_copys_weights_are_the_base_plus_the_delta_rounded_once_in_one_block() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        base = bare().to(dtype)
        model = moved(base)
        layers = folded(base, model, "policy").model.layers
        lora = model.get_base_model().model.layers[1].mlp.up_proj
        a, b = (part["policy"].weight.double() for part in (lora.lora_A, lora.lora_B))
        exact = base.model.layers[1].mlp.up_proj.weight.double() + lora.scaling["policy"] * (b @ a)
        torch.testing.assert_close(layers[1].mlp.up_proj.weight, exact.to(dtype), rtol=1e-6, atol=1e-6)
        first, last = layers[0].self_attn.q_proj.weight, layers[1].mlp.down_proj.weight
        assert first.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()


def test_a_copy_is_what_peft_itself_would_merge_to_the_last_bit() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        base = bare().to(dtype)
        model = moved(base)
        mine = folded(base, model, "policy").model.layers
        for layer, theirs in zip(mine, model.get_base_model().model.layers, strict=True):
            for path in ("self_attn.k_proj", "mlp.down_proj"):
                lora = theirs.get_submodule(path)
                merged = lora.base_layer.weight.float() + lora.get_delta_weight("policy").float()
                assert torch.equal(layer.get_submodule(path).weight, merged.to(dtype))


def test_x26_folding_many_versions_does_not_drift() -> None:
    """Each copy starts at the base. Merging in place and back changes bfloat16 weights for good."""
    base = bare().to(torch.bfloat16)
    model = moved(base)
    first = folded(base, model, "policy").state_dict()
    for _ in range(5):
        last = folded(base, model, "policy").state_dict()
    assert all(torch.equal(first[key], last[key]) for key in first)


def test_adapters_over_a_bfloat16_base_are_float32() -> None:
    model = adapted(bare().to(torch.bfloat16), SHAPE, None, seed=0)
    for name in ("policy", "reference"):
        assert {t.dtype for t in adapter_tensors(model, name).values()} == {torch.float32}


def test_tied_embeddings_stay_tied() -> None:
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)).eval()
    twin = share(base)
    assert twin.lm_head.weight.data_ptr() == twin.model.embed_tokens.weight.data_ptr()
    assert twin.lm_head.weight.data_ptr() == base.lm_head.weight.data_ptr()


def test_peft_reads_what_was_saved_and_computes_the_same(tmp_path: Path) -> None:
    base = bare()
    model = moved(base)
    save_adapter(model, tmp_path)
    theirs = PeftModel.from_pretrained(bare(), str(tmp_path)).eval()
    torch.testing.assert_close(logits(theirs), logits(model), rtol=0, atol=1e-6)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (4, 8, "LORA")
    assert config["base_model_name_or_path"] is None


def test_what_peft_saved_is_read(tmp_path: Path) -> None:
    model = moved(bare())
    model.save_pretrained(str(tmp_path), selected_adapters=["policy"])
    again = adapted(bare(), SHAPE, tmp_path / "policy", seed=5)
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)
    again.base_model.set_adapter("reference")
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=0)


def test_the_saved_adapter_differs_after_a_change_and_is_the_same_otherwise(tmp_path: Path) -> None:
    fresh, changed = adapted(bare(), SHAPE, None, seed=0), moved(bare())
    for name, model in (("a", fresh), ("b", fresh), ("c", changed)):
        save_adapter(model, tmp_path / name)
    a, b, c = ((tmp_path / name / "adapter_model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_saving_in_bfloat16_halves_the_file_and_loads_as_float32(tmp_path: Path) -> None:
    model = moved(bare())
    save_adapter(model, tmp_path, torch.bfloat16)
    again = adapted(bare(), SHAPE, tmp_path, seed=0)
    for key, tensor in adapter_tensors(model, "policy").items():
        got = adapter_tensors(again, "policy")[key]
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, tensor.to(torch.bfloat16).float(), rtol=0, atol=0)


def test_the_reference_may_be_the_base_or_another_adapter(tmp_path: Path) -> None:
    base = bare()
    start, other = moved(base), moved(base)
    with torch.no_grad():
        for tensor in adapter_tensors(other, "policy").values():
            tensor.mul_(-1.5)
    save_adapter(start, tmp_path / "start")
    save_adapter(other, tmp_path / "other")
    model = adapted(base, SHAPE, tmp_path / "start", seed=0)
    for reference, expected in (("base", base), (tmp_path / "other", other), (tmp_path / "start", start)):
        set_reference(model, reference)  # type: ignore[arg-type]
        model.base_model.set_adapter("reference")
        torch.testing.assert_close(logits(model), logits(expected), rtol=0, atol=1e-6)
        model.base_model.set_adapter("policy")
        torch.testing.assert_close(logits(model), logits(start), rtol=0, atol=0)


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def saved(folder: Path, shape: LoraShape = SHAPE, **config: Any) -> Path:
    save_adapter(moved(bare(), shape), folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


def rewritten(folder: Path, rename: dict[str, str], drop: str = "") -> Path:
    path = folder / "adapter_model.safetensors"
    tensors = {k: v for k, v in load_file(path).items() if not drop or drop not in k}
    for old, new in rename.items():
        tensors = {k.replace(old, new): v for k, v in tensors.items()}
    save_file(tensors, path)
    return folder


def test_a_reference_of_another_shape_or_scale_is_refused(tmp_path: Path) -> None:
    model = adapted(bare(), SHAPE, None, seed=0)
    few = LoraShape(rank=4, alpha=8, targets=["q_proj"])
    for folder, said in (
        (saved(tmp_path / "rank", LoraShape(rank=2, alpha=8)), "r is 2, the policy's adapter has 4"),
        (saved(tmp_path / "alpha", LoraShape(rank=4, alpha=32)), "lora_alpha is 32"),
        (saved(tmp_path / "targets", few), "another shape"),
        (tmp_path / "nowhere", "no adapter here"),
    ):
        with pytest.raises(ModelError, match=said) as error:
            set_reference(model, folder)
        assert str(folder) in one_line(error)


def test_t24_adapters_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    broken = saved(tmp_path / "broken")
    (broken / "adapter_model.safetensors").write_bytes(b"no tensors")
    text = saved(tmp_path / "text")
    (text / "adapter_config.json").write_text("{")
    no_weights = saved(tmp_path / "no-weights")
    (no_weights / "adapter_model.safetensors").unlink()
    wrong = [
        (tmp_path / "nowhere", "no adapter here"),
        (broken, "cannot read"),
        (text, "cannot read adapter_config.json"),
        (no_weights, "cannot read"),
        (saved(tmp_path / "dora", use_dora=True), "not a plain LoRA .use_dora."),
        (saved(tmp_path / "head", modules_to_save=["lm_head"]), "not a plain LoRA .modules_to_save."),
        (saved(tmp_path / "kind", peft_type="IA3"), "not a plain LoRA .IA3"),
        (saved(tmp_path / "rank", r=16), "cannot read.*size mismatch"),
        # A wrong prefix or a lost tensor: PEFT goes on with fresh ones, so the base answers.
        (
            rewritten(saved(tmp_path / "prefix"), {"model.layers": "model.language_model.layers"}),
            "another shape",
        ),
        (rewritten(saved(tmp_path / "lost"), {}, drop="layers.1.mlp.up_proj"), "another shape.*nothing"),
    ]
    for folder, said in wrong:
        with pytest.raises(ModelError, match=said) as error:
            adapted(bare(), SHAPE, folder, seed=0)
        assert str(folder) in one_line(error)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["nothing_here"], r"\[lora\]: cannot put this adapter"),
        (["q_proj", "lm_head"], r"\[lora\] targets: lm_head cannot carry"),
        (["q_proj", "embed_tokens"], r"\[lora\] targets: model.embed_tokens cannot carry"),
    ],
)
def test_t19_targets_that_cannot_be_trained(targets: list[str], said: str) -> None:
    with pytest.raises(ModelError, match=said) as error:
        adapted(bare(), LoraShape(targets=targets), None, seed=0)
    one_line(error)


def test_a_base_is_loaded_frozen_in_eval_mode(tiny_model: Path) -> None:
    base = load_base(tiny_model, torch.float32, "cpu")
    assert not base.training
    assert not any(p.requires_grad for p in base.parameters())
    assert base.dtype == torch.float32


def test_models_that_cannot_be_read_are_refused_in_one_line(tiny_model: Path, tmp_path: Path) -> None:
    broken, kind, cut = (Path(shutil.copytree(tiny_model, tmp_path / n)) for n in ("broken", "kind", "cut"))
    (broken / "model.safetensors").write_bytes(b"no tensors")
    (kind / "config.json").write_text('{"model_type": "no such kind"}')
    tensors = load_file(cut / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, cut / "model.safetensors", metadata={"format": "pt"})
    other = write_model(tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "hidden_size": 32, "head_dim": 16}))
    for folder, said in (
        (tmp_path / "nowhere", "cannot load this model"),
        (broken, "cannot load this model"),
        (kind, "cannot load this model"),
        (cut, "1 weights are not in its files, model.layers.1.mlp.up_proj.weight among them"),
        (other, "cannot load this model"),
    ):
        with pytest.raises(ModelError, match=said) as error:
            load_base(folder, torch.float32, "cpu")
        assert str(folder) in one_line(error)


def test_what_was_asked_for_is_taken() -> None:
    assert (pick_device("cpu"), pick_dtype("float32", "cpu")) == ("cpu", torch.float32)
    assert pick_dtype("bfloat16", "cpu") == torch.bfloat16
    assert pick_dtype("auto", "cuda") == torch.bfloat16
