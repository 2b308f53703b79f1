"""The [training] table: what a loss's name decides, and what does not fit together."""

from pathlib import Path
from typing import Any

import pytest

from strop.app.building import learner, rule
from strop.config import RunConfig, dump, load
from strop.config.losses import LOSSES
from strop.errors import ConfigError

ROLLOUT = '[rollout]\nscenarios = "data/s.jsonl"\nagent = "agent.py:run"\n'


def read(folder: Path, *lines: str) -> RunConfig:
    path = folder / "run.toml"
    path.write_text(ROLLOUT + "[training]\n" + "\n".join(lines) + "\n")
    return load(path)


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_left_out_is_as_the_loss_has_it_and_what_is_written_stays(tmp_path: Path, name: str) -> None:
    """Also after the resolved settings were written down and read again."""
    plain = read(tmp_path, f'loss = "{name}"')
    own = LOSSES[name].settings()  # type: ignore[index]
    assert {key: getattr(plain.training, key) for key in own} == own
    written = read(tmp_path, f'loss = "{name}"', "clip_high = 0.5", 'scale = "rank"').training
    assert (written.clip_high, written.scale, written.clip_low) == (0.5, "rank", own["clip_low"])
    for config in (plain, plain.model_copy(update={"training": written})):
        path = tmp_path / "resolved.toml"
        path.write_text(dump(config))
        assert load(path) == config


def test_without_a_loss_it_is_grpo_as_it_always_was(tmp_path: Path) -> None:
    training = read(tmp_path).training
    assert (training.loss, training.aggregation, training.scale) == ("grpo", "token_mean", "std")
    assert (training.clip_low, training.clip_high, training.dual_clip, training.tis_cap) == (0.2, 0.28, 3, 2)
    assert (training.schedule, training.warmup, training.leave_one_out) == ("constant", 0, False)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['loss = "cispo"', "dual_clip = 9.0"], 'dual_clip does not fit loss = "cispo"'),
        (["dual_clip = 1.2"], "dual_clip = 1.2 is not above 1 + clip_high = 1.28"),
        (['schedule = "cosine"', "steps = 3", "warmup = 3"], "warmup = 3 leaves nothing of the 3 optimizer"),
        (["dual_clip = 0.5"], 'dual_clip: 0.5 is not allowed; it must be a number greater than 1 or "off"'),
        (['tis_cap = "none"'], "tis_cap: 'none' is not allowed; it must be a number at least 1 or \"off\""),
        (['loss = "ppo"', "clip_low = 0.1"], "loss: 'ppo' is not allowed"),
        (["loss = ['grpo']"], "loss: ['grpo'] is not allowed"),
        (["clip_low = 1.5"], "clip_low: 1.5 is not allowed"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, *lines)
    assert str(caught.value).startswith("run.toml: [training]")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_learner_gets_what_the_table_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    lines = ['loss = "gspo"', "kl_coef = 0.1", 'kl = "k2"', 'tis_cap = "off"', "warmup = 2", "steps = 9"]
    settings = learner(read(tmp_path, *lines, 'schedule = "linear"', "updates_per_step = 2"))
    expected: dict[str, Any] = {
        "surrogate": "sequence_clipped",
        "aggregation": "sequence_mean",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "dual_clip": None,
        "kl_coef": 0.1,
        "kl": "k2",
        "tis_cap": None,
        "length": 2048,
    }
    assert {key: getattr(settings.loss, key) for key in expected} == expected
    assert settings.schedule is not None
    assert (settings.schedule.shape, settings.schedule.warmup, settings.schedule.updates) == ("linear", 2, 18)


def test_the_rule_gets_what_the_table_says(tmp_path: Path) -> None:
    lines = ['scale = "none"', "leave_one_out = true", "noise_floor = 0.05", "judge_noise = false"]
    got = rule(read(tmp_path, *lines))
    assert (got.scale, got.leave_one_out, got.noise_floor, got.judge_noise) == ("none", True, 0.05, False)
