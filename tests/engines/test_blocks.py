"""What is done in place rounds as transformers' own modules do, to the bit.

With other roundings some tokens of a real model are 1e-3 nats off instead of 1e-5: it magnifies them.
"""

import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from strop.engines.local.blocks import Norm, Turn

TOKENS, HEADS, WIDTH = 37, 3, 64


def random(*shape: int, seed: int) -> torch.Tensor:
    return 30 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_norm_is_transformers_own() -> None:
    theirs = LlamaRMSNorm(WIDTH * 9, eps=1e-5)
    theirs.weight.data = random(WIDTH * 9, seed=1)
    x = random(TOKENS, WIDTH * 9, seed=2)
    own = Norm(theirs.weight.data, 1e-5)
    for got in (own(x)[0], own(x, torch.full_like(x, torch.nan))[0]):
        torch.testing.assert_close(got, theirs(x).detach(), rtol=0, atol=0)


def test_the_rotation_is_transformers_own() -> None:
    angles = torch.arange(TOKENS)[:, None] * 0.1 ** torch.linspace(0, 4, WIDTH // 2)
    cos, sin = (torch.cat([part, part], dim=1) for part in (angles.cos(), angles.sin()))
    query, key = random(TOKENS, HEADS, WIDTH, seed=3), random(TOKENS, 1, WIDTH, seed=4)
    expected = apply_rotary_pos_emb(*(x.transpose(0, 1)[None] for x in (query, key)), cos[None], sin[None])
    turn = Turn.of(cos, sin)
    for x, theirs in zip((query, key), expected, strict=True):
        torch.testing.assert_close(turn.by_(x.clone()), theirs[0].transpose(0, 1), rtol=0, atol=0)
        torch.testing.assert_close(turn.back.by_(turn.by_(x.clone())), x)
