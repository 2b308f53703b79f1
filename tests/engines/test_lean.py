"""The lean pass gives what the model itself gives."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from lean_families import FAMILIES
from strop.engines.local.decoder import Piece, SlotDecoder, decoder_for
from strop.engines.local.lean import agrees, lean_for
from strop.engines.local.slots import CHUNK


@torch.inference_mode()
@pytest.mark.parametrize("family", list(FAMILIES))
def test_steps_after_a_shared_prefix_equal_a_fresh_forward_pass(family: str) -> None:
    torch.manual_seed(1)
    model = FAMILIES[family]().eval()
    for key, parameter in model.named_parameters():
        if "norm" in key or "bias" in key:
            parameter.add_(0.3 * torch.randn(parameter.shape))
    twin = FAMILIES[family]().eval()
    twin.load_state_dict(model.state_dict())
    decoder = SlotDecoder(model)
    decoder.quicken()
    assert decoder._lean is not None
    common = torch.randint(0, 96, (CHUNK + 6,)).tolist()
    prompts = [[*common, *torch.randint(0, 96, (size,)).tolist()] for size in (3, 9, 70)]
    bank = decoder.bank(5)
    slots = [bank.take(prompt, str(number)) for number, prompt in enumerate(prompts)]
    decoder.fill(bank, [Piece(s, p[:-1]) for s, p in zip(slots, prompts, strict=True)])
    guesses = [torch.randint(0, 96, (size,)).tolist() for size in (4, 0, 16)]
    unread = [[p[-1], *guess] for p, guess in zip(prompts, guesses, strict=True)]
    logits = torch.cat(list(decoder.step(bank, slots, unread)))
    for prompt, guess in zip(prompts, guesses, strict=True):
        mine, logits = logits.split([len(guess) + 1, len(logits) - len(guess) - 1])
        expected = twin(torch.tensor([prompt + guess])).logits[0, len(prompt) - 1 :]
        assert torch.allclose(mine, expected, atol=1e-4)
    assert not len(logits)


def test_other_architectures_have_no_lean_pass() -> None:
    small = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)
    assert lean_for(GPT2LMHeadModel(small)) is None


def test_a_lean_pass_that_disagrees_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = SlotDecoder(FAMILIES["llama"]().eval())
    monkeypatch.setattr("strop.engines.local.lean.LeanLlama.head", lambda *_: torch.zeros(1, 96))
    decoder.quicken()
    assert decoder._lean is None


@torch.inference_mode()
@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_copy_with_other_weights_is_decoded_alike_without_being_tried(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    first = decoder_for(FAMILIES[family]().eval())
    copy, twin, other = (FAMILIES[family]().eval() for _ in range(3))
    twin.load_state_dict(copy.state_dict())
    other.config.rms_norm_eps *= 2
    with monkeypatch.context() as patch:
        patch.setattr("strop.engines.local.decoder.agrees", lambda *_: pytest.fail("it was tried"))
        made = decoder_for(copy, [first])
        with pytest.raises(pytest.fail.Exception):
            decoder_for(other, [first])
    assert isinstance(made, SlotDecoder)
    assert made._lean is not None
    bank = made.bank(1)
    slot = bank.take([1, 2, 3, 4], None)
    assert slot is not None
    made.fill(bank, [Piece(slot, [1, 2, 3])])
    (logits,) = made.step(bank, [slot], [[4]])
    assert torch.allclose(logits[0], twin(torch.tensor([[1, 2, 3, 4]])).logits[0, -1], atol=1e-4)


@torch.inference_mode()
def test_weights_that_lie_one_behind_another_are_not_copied() -> None:
    model = FAMILIES["llama"]().eval()
    attention = model.model.layers[0].self_attn
    apart = attention.q_proj.weight.clone()
    lean_for(model)
    assert torch.equal(attention.q_proj.weight, apart)
    where = attention.q_proj.weight.data_ptr()
    again = lean_for(model)
    assert again is not None
    assert again._blocks[0].qkv.data_ptr() == attention.q_proj.weight.data_ptr() == where
    three = (attention.q_proj, attention.k_proj, attention.v_proj)
    assert torch.equal(again._blocks[0].qkv, torch.cat([projection.weight for projection in three]))


def test_agreement_is_of_the_likeliest_tokens() -> None:
    one = torch.tensor([[5.0, 4.0, -30.0, -30.0, -30.0, -40.0]])
    rare, first = one.clone(), one.clone()
    rare[0, 5] = -35.0
    first[0, 0] = 6.0
    assert agrees(one, rare)
    assert not agrees(one, first)
