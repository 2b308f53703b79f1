"""Grading through a vLLM server, against a stand-in whose log-probs are known by hand."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import vllm_stub
from safetensors.torch import load_file, save_file

from local_model import make_row
from strop.app.grading import WORK, GradeJob, _survey, _written, grade_file
from strop.config.engine import EngineConfig
from strop.engines.local.contrast import ContrastConfig
from strop.engines.local.weights import LoraShape, adapted, load_base, save_adapter
from strop.engines.vllm import reading_proof
from strop.engines.vllm.contrast import VllmContrast
from strop.engines.vllm.outline import Outline
from strop.engines.vllm.reading_proof import ReadingProof
from strop.engines.vllm.settings import VllmSettings
from strop.errors import EngineError, InputError, ModelError
from strop.grader.codec import from_json
from strop.trajectory.lines import read_objects, write_objects
from strop.trajectory.tokens import Row

WORDS = 64
PATIENCE_S = 120.0
ROWS = [
    make_row([5, 9, 2, 7, 1, 30], [0, 0, 1, 1, 0, 1], name="a"),
    make_row([5, 9, 2, 8, 8], [0, 0, 0, 1, 1], name="b"),
]
POISONED = make_row([5, 9, 13, 8], [0, 0, 0, 1], name="poisoned")
AS_BAD = make_row([5, 9, 8, 13], [0, 0, 0, 1], name="as bad")


@pytest.fixture
def adapter(tmp_path: Path, tiny_model: Path) -> Callable[..., Path]:
    """Makes an adapter folder, another one for each seed."""

    def make(seed: int, scale: float = 0.3) -> Path:
        folder = tmp_path / f"adapter-{seed}"
        model = adapted(load_base(tiny_model, torch.float32, "cpu"), LoraShape(rank=2), None, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        save_adapter(model, folder)
        return folder

    return make


class Reader:
    """Opens contrasts over stand-ins in `folder`; `tell` makes them misbehave."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        self.opened: list[VllmContrast] = []
        self.proofs: list[ReadingProof] = []

    def __call__(self, policy: Path | str, *references: Path | str, **settings: Any) -> VllmContrast:
        config = ContrastConfig(
            policy=str(policy),
            references=tuple(map(str, references)),
            model=str(self.model),
            dtype="float32",
            device="cpu",
            max_length=60,
        )
        given = {"python": vllm_stub.install(self.folder), "start_timeout_s": PATIENCE_S, **settings}
        self.opened.append(VllmContrast(config, VllmSettings(**given), self.proofs.append))
        return self.opened[-1]

    def tell(self, name: str) -> None:
        (self.folder / name).touch()


@pytest.fixture
def reader(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """The stand-in is another model than the tiny one, so nothing is read here beside it."""
    monkeypatch.setenv("STUB_DIR", str(tmp_path))
    monkeypatch.setenv("STUB_TOKENS", str(WORDS))
    monkeypatch.setattr(vllm_stub, "TOKENS", WORDS)
    monkeypatch.setattr(reading_proof, "SMALL", 0)
    one = Reader(tmp_path, tiny_model)
    yield one
    for contrast in one.opened:
        contrast.close()


def expected(row: Row, weight: float) -> list[float]:
    """The stand-in's log-probs of the row's sampled tokens."""
    ids = row.ids.tolist()
    return [vllm_stub.logprobs(ids[:at], weight, 1.0)[ids[at]] for at in np.flatnonzero(row.mask)]


def weight(folder: Path) -> float:
    found = vllm_stub.weight_of(folder)
    assert found is not None
    return found


def test_log_probs_of_every_side_and_nothing_else(reader: Reader, adapter: Callable[..., Path]) -> None:
    after, before = adapter(1), adapter(2)
    contrast = reader(after, before, "base")
    for row, found in zip(ROWS, contrast.read(ROWS), strict=True):
        sides = [found.policy.logprobs, *(each.logprobs for each in found.references)]
        for side, shift in zip(sides, (weight(after), weight(before), 0.0), strict=True):
            np.testing.assert_allclose(side, expected(row, shift), atol=1e-12)
        assert found.policy.entropy is found.policy.self_certainty is found.policy.topk_logprob is None
        assert [each.kl for each in found.references] == [None, None]
    assert contrast.max_length == 60
    assert contrast.references == (str(before), "base")


def test_a_policy_that_is_its_reference_is_asked_once(
    reader: Reader, adapter: Callable[..., Path], tmp_path: Path
) -> None:
    """Also where it is a copy, and where a fresh adapter is held against the bare base."""
    one, fresh = adapter(1), adapter(3, scale=0.0)
    copy = shutil.copytree(one, tmp_path / "copy")
    for policy, reference in ((one, copy), (fresh, "base")):
        contrast = reader(policy, reference)
        for found in contrast.read(ROWS):
            np.testing.assert_array_equal(found.policy.logprobs, found.references[0].logprobs)
        url = contrast._serving._server.url
        served = [model["id"] for model in contrast._serving._control.models(url)]
        assert len(served) == (3 if policy == one else 1)


def test_rows_in_flight_when_the_server_dies_are_read_by_the_next_one(
    reader: Reader, adapter: Callable[..., Path]
) -> None:
    contrast = reader(adapter(1), "base")
    whole = contrast.read(ROWS)
    reader.tell("die")
    for before, now in zip(whole, contrast.read(ROWS), strict=True):
        np.testing.assert_array_equal(before.policy.logprobs, now.policy.logprobs)


def test_rows_that_kill_the_server_are_refused_and_remembered(
    reader: Reader, adapter: Callable[..., Path]
) -> None:
    """It is started again more often than in a row with no answer, for it answers between."""
    reader.tell("poison")
    contrast = reader(adapter(1), "base")
    with pytest.raises(InputError, match="vLLM was lost 2 times while it read this alone"):
        contrast.read([*ROWS, POISONED, AS_BAD])
    (reader.folder / "poison").unlink()
    for row in (POISONED, AS_BAD):
        with pytest.raises(InputError, match=f"{row.trajectory_id}: vLLM was lost 2 times"):
            contrast.read([row])
    assert len(contrast.read(ROWS)) == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("bare", "bit for bit the same log-probs for .*adapter-1 and base, which are different models"),
        ("misname", "vLLM answered as 'base', not as 'read-"),
        ("logits", "says logits of prompts, not log-probs; start it without --logprobs-mode"),
        ("closed", "takes no adapters; start it with --enable-lora"),
    ],
)
def test_a_server_that_does_not_read_what_it_was_given_is_refused(
    reader: Reader, adapter: Callable[..., Path], fault: str, said: str
) -> None:
    reader.tell(fault)
    with pytest.raises(EngineError, match=said):
        reader(adapter(1), "base").read(ROWS)


def test_a_server_that_gives_log_probs_before_temperature_will_do(
    reader: Reader, adapter: Callable[..., Path]
) -> None:
    """Of prompts it has no others."""
    reader.tell("raw")
    assert len(reader(adapter(1), "base").read(ROWS)) == 2


def test_what_cannot_be_read_is_refused_before_anything_is_asked(
    reader: Reader, adapter: Callable[..., Path], tiny_model: Path
) -> None:
    contrast = reader(adapter(1), "base")
    reader.tell("die")
    hot = make_row([5, 9, 2], [0, 0, 1], temperature=0.7, name="hot")
    with pytest.raises(InputError, match=r"hot: sampled at temperature 0\.7; .* --engine local"):
        contrast.read([*ROWS, hot])
    with pytest.raises(InputError, match="token ids from 5 to 99, the model's vocabulary has 64"):
        contrast.read([make_row([5, 99], [0, 1])])
    assert (reader.folder / "die").exists()
    with pytest.raises(InputError, match="a vLLM server holds one model, so read whole models with"):
        reader(adapter(1), str(tiny_model.parent))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
def test_a_reading_here_is_what_the_servers_is_held_against(
    tiny_model: Path, adapter: Callable[..., Path]
) -> None:
    """The adapter's folder against the same model by transformers and PEFT, and against one left out."""
    config = ContrastConfig(policy=str(adapter(1)), model=str(tiny_model), dtype="float32", device="cpu")
    row = ROWS[0]
    true = [plain(tiny_model, adapter(1), row), plain(tiny_model, None, row)]
    proof = reading_proof.read_here(config, 1, row, true, 1e-3)
    assert proof.gap is not None
    assert 0 < proof.gap < 1e-4
    assert 0 < proof.tokens <= 10
    with pytest.raises(EngineError, match=r"does not read base as it is: a log-prob of a is .* nats from"):
        reading_proof.read_here(config, 1, row, [true[0], true[0]], 1e-3)
    unknown = reading_proof.read_here(config, reading_proof.SMALL + 1, row, true, 1e-3)
    assert unknown == ReadingProof(gap=None, bound=1e-3, tokens=0)


def plain(model: Path, folder: Path | None, row: Row) -> np.ndarray[Any, np.dtype[np.float64]]:
    """log p of each token by transformers, and PEFT; nan for the first."""
    from peft import PeftModel

    base = load_base(model, torch.float32, "cpu")
    worn = base if folder is None else PeftModel.from_pretrained(base, str(folder))
    with torch.no_grad():
        logp = worn(torch.tensor([row.ids.tolist()])).logits[0].double().log_softmax(-1)
    found = logp[:-1].gather(1, torch.tensor(row.ids[1:])[:, None])[:, 0].numpy()
    return np.array([np.nan, *found])


PREFIX = "base_model.model."
LINEAR = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]


def spoiled(folder: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Path:
    """Put these into the folder's weights and config."""
    file = folder / "adapter_model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})
    known = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**known, **config}))
    return folder


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        (
            {"lm_head.lora_A.weight": (2, 64), "lm_head.lora_B.weight": (64, 2)},
            {"target_modules": [*LINEAR, "lm_head"]},
            "lm_head cannot carry a LoRA",
        ),
        (
            {"model.embed_tokens.lora_embedding_A": (2, 64), "model.embed_tokens.lora_embedding_B": (64, 2)},
            {},
            "embed_tokens.lora_embedding_A is .*, not nothing",
        ),
        ({"lm_head.base_layer.weight": (64, 64)}, {}, "lm_head.base_layer.weight is .*, not nothing"),
        ({"lm_head.weight": (64, 64)}, {"modules_to_save": ["lm_head"]}, "not a plain LoRA .modules_to_save"),
        ({"model.blocks.0.q_proj.lora_A.weight": (2, 64)}, {}, "blocks.0.q_proj.lora_A.weight is"),
        ({}, {"use_dora": True}, "not a plain LoRA .use_dora"),
        ({}, {"bias": "all"}, "LORA with bias all"),
    ],
)
def test_adapters_that_vllm_would_not_apply_whole_are_refused(
    adapter: Callable[..., Path],
    tiny_model: Path,
    tensors: dict[str, tuple[int, int]],
    config: dict[str, Any],
    said: str,
) -> None:
    made = {PREFIX + name: torch.ones(shape) for name, shape in tensors.items()}
    folder = spoiled(adapter(1), made, **config)
    with pytest.raises(ModelError, match=said) as refused:
        Outline(tiny_model).adapter(folder)
    assert str(folder) in str(refused.value)


def test_an_outline_has_the_models_sizes_and_an_adapters(
    adapter: Callable[..., Path], tiny_model: Path, tmp_path: Path
) -> None:
    outline = Outline(tiny_model)
    assert (outline.vocabulary, outline.context) == (64, 512)
    base = load_base(tiny_model, torch.float32, "cpu")
    assert outline.parameters == sum(parameter.numel() for parameter in base.parameters())
    one = outline.adapter(adapter(1))
    copy = outline.adapter(shutil.copytree(one.folder, tmp_path / "copy"))
    assert (one.rank, one.changes) == (2, True)
    assert replace(copy, folder=one.folder) == one
    assert not outline.adapter(adapter(3, scale=0.0)).changes
    assert outline.adapter(adapter(2)).digest != one.digest


def test_a_file_is_graded_through_a_server(
    reader: Reader, adapter: Callable[..., Path], tiny_model: Path, tmp_path: Path
) -> None:
    """What a server does not say is null, a row that ends it has a reason, no other engine goes on there."""
    write_objects(tmp_path / "runs.jsonl", [run("a", [7, 1]), run("b", [13]), run("c", [8, 8, 30])])
    reader.tell("poison")
    job = GradeJob(
        file=tmp_path / "runs.jsonl",
        out=tmp_path / "grades.jsonl",
        policy=str(adapter(1)),
        model=str(tiny_model),
        dtype="float32",
        max_length=60,
        engine=EngineConfig(kind="vllm", python=vllm_stub.install(tmp_path)),
    )
    result = grade_file(job)
    assert (result["graded"], result["ungraded"]) == (2, 1)
    assert result["vllm"]["gap"] is None
    first, lost, _ = [from_json(line) for line in read_objects(tmp_path / "grades.jsonl")]
    assert lost.ungraded is not None
    assert "vLLM was lost 2 times while it read this alone" in lost.ungraded
    row = make_row([5, 9, 7, 1], [0, 0, 1, 1])
    ratio = np.subtract(expected(row, weight(adapter(1))), expected(row, 0.0))
    step = first.steps[0]
    assert step.grade == pytest.approx(ratio.sum())
    assert step.entropy is step.self_certainty is step.deepconf is None
    assert step.readings["base"]["all"].centred is None
    work = tmp_path / f"grades.jsonl{WORK}"
    work.mkdir()
    (work / "settings.json").write_text(json.dumps(_written(job, _survey(job.file)[1])))
    with pytest.raises(InputError, match="was begun with another engine"):
        grade_file(replace(job, engine=EngineConfig()))


def run(name: str, sampled: list[int]) -> dict[str, Any]:
    """A trajectory of one turn behind the prompt 5 9."""
    turn = {
        "prompt_ids": [5, 9],
        "sampled_ids": sampled,
        "logprobs": [-1.0] * len(sampled),
        "finish_reason": "stop",
        "message_index": 1,
    }
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    return {"trajectory_id": name, "scenario_id": name, "messages": messages, "turns": [turn]}
