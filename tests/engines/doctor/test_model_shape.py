"""A model's sizes without its weights, against transformers and PEFT, which have them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from families import family
from strop.engines.doctor.shape import Shape, embedded_shape, shape_in, shape_of
from strop.engines.embedded import cached_model
from strop.engines.local.weights import LoraShape, adapted
from strop.errors import ModelError

NAMES = ("llama", "tied", "qwen2", "qwen3", "gemma3", "gpt2")


def saved(name: str, folder: Path) -> tuple[Path, int]:
    """A tiny model of a family written to a folder, and how many parameters it has."""
    model = family(name)
    model.save_pretrained(folder)
    return folder, sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    folder, parameters = saved(name, tmp_path)
    shape = shape_in(folder)
    assert (shape.parameters, shape.stored, shape.counted) == (parameters, 4 * parameters, True)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_linear_layers_are_those_that_peft_finds(name: str, tmp_path: Path) -> None:
    folder, _ = saved(name, tmp_path)
    model = adapted(family(name), LoraShape(rank=4), None, 0)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert 4 * sum(one.inputs + one.outputs for one in shape_in(folder).linears) == trained


@pytest.mark.parametrize("name", ["llama", "tied"])
def test_a_config_alone_is_enough_for_a_plain_decoder(name: str, tmp_path: Path) -> None:
    folder, _ = saved(name, tmp_path / "whole")
    (tmp_path / "bare").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "bare")
    counted, worked_out = shape_in(folder), shape_in(tmp_path / "bare")
    assert (worked_out.counted, counted.counted) == (False, True)
    assert worked_out.parameters == counted.parameters
    assert worked_out.linears == counted.linears


def test_the_embedded_model_is_known_before_it_is_fetched() -> None:
    """134,515,008: what the model's own card counts as 135M."""
    shape = embedded_shape()
    assert shape.parameters == 134_515_008
    folder = cached_model()
    if folder is not None:
        there = shape_in(folder)
        assert (there.parameters, there.linears) == (shape.parameters, shape.linears)


def test_parts_of_a_model_that_is_split_are_added_up(tmp_path: Path) -> None:
    model = family("llama")
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert shape_in(tmp_path).parameters == sum(p.numel() for p in model.parameters())


def test_a_language_model_within_another() -> None:
    """Models for images too keep the language model's sizes in a table of its own."""
    own = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10}
    shape = shape_from({"text_config": own, "model_type": "outer"})
    assert (shape.width, shape.kv_heads, shape.head_dim, shape.inner) == (8, 2, 4, 32)


def shape_from(config: dict[str, object]) -> Shape:
    from strop.engines.doctor.shape import _shape

    return _shape(config, {}, "here")


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=re.escape("cannot read config.json")):
        shape_in(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 3}))
    with pytest.raises(ModelError, match="gives no layers and no heads and no vocabulary"):
        shape_in(tmp_path)
    config = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs")
    with pytest.raises(ModelError, match="no whole safetensors file"):
        shape_in(tmp_path)


def test_a_hub_model_is_known_once_it_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert shape_of("some/model") is None
    folder, parameters = saved("llama", tmp_path / "models--some--model/snapshots/abc")
    shape = shape_of("some/model")
    assert folder.is_dir()
    assert shape is not None
    assert shape.parameters == parameters
