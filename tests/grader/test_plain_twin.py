"""strop's grades beside the brute-force twin: random models always, the embedded one where asked for."""

import json
import os
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from plain_twin import AGGREGATE, load_pair, step_grades
from transformers import AutoModelForCausalLM

from local_model import write_model
from strop.app.grading import GradeJob, grade_file
from strop.engines.embedded import cached_model
from strop.grader.codec import from_json
from strop.grader.recipe import Recipe, step_score
from strop.trajectory.lines import read_objects, write_objects

DATA = Path(os.environ.get("STROP_DATA") or Path(__file__).parents[3] / "shared" / "data")
TAU = DATA / "tau_bench" / "gpt-4o-airline.json"
ADAPTER = Path(__file__).parents[2] / "src/strop/demo/adapters/warmstart"
TOLERANCE, SHARE = 1e-4, 1e-5
"""Nats, or of the number where that is more: single tokens in float32 are some 1e-5 off, sums of 200 more."""
# PEFT itself uses an old name in transformers.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")


def call(name, **arguments):
    return {"function": {"name": name, "arguments": json.dumps(arguments)}, "type": "function", "id": "x"}


CHAT = [
    {"role": "system", "content": "be kind. be quick."},
    {"role": "user", "content": "where is it: a, or b?"},
    {"role": "assistant", "content": "let me look."},
    {"role": "assistant", "content": None, "tool_calls": [call("look", where="a", deep=True), call("b")]},
    {"role": "tool", "content": "nothing here", "name": "look"},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "content": "it is in b,\nsorry."},
]


@pytest.fixture(scope="module")
def random_pair(tmp_path_factory):
    """A random base, and a LoRA on it whose B is not zero."""
    folder = write_model(tmp_path_factory.mktemp("model") / "base", seed=3)
    torch.manual_seed(4)
    base = AutoModelForCausalLM.from_pretrained(folder)
    model = get_peft_model(
        base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapter = folder.parent / "adapter"
    model.save_pretrained(adapter)
    return folder, adapter


def our_steps(tmp_path, chats, *, policy, model, **how):
    """Grades of the file's chats by the verb's own code, in float32 and the plain format."""
    file, out = tmp_path / "chats.jsonl", tmp_path / "grades.jsonl"
    write_objects(file, [{"trajectory_id": f"t{i}", "messages": chat} for i, chat in enumerate(chats)])
    job = GradeJob(
        file=file, out=out, policy=str(policy), model=str(model), text="plain", dtype="float32", **how
    )
    grade_file(job)
    return [from_json(line) for line in read_objects(out)]


def assert_alike(graded, theirs):
    """Every step that the twin scores whole is scored the same here, the others are unscored here."""
    ours = {step.index: step for step in graded.steps}
    compared = 0
    for how, grades in theirs.items():
        recipe = Recipe(token=how, reading="difference-of-aggregates")
        for index, wanted in enumerate(grades):
            assert (index in ours) == (wanted is not None)
            if wanted is not None:
                assert step_score(ours[index], recipe) == pytest.approx(wanted, abs=TOLERANCE, rel=SHARE)
                compared += 1
    return compared


def test_random_models_give_the_twins_grades(tmp_path, random_pair):
    model, adapter = random_pair
    chats = [CHAT, CHAT[:3], CHAT[:2] + CHAT[6:]]
    pair = load_pair(model, adapter)
    for graded, chat in zip(our_steps(tmp_path, chats, policy=adapter, model=model), chats, strict=True):
        assert graded.unscored == ()
        assert assert_alike(graded, step_grades(pair, chat, 512, AGGREGATE)) == 5 * len(graded.steps)
        assert max(abs(step.grade) for step in graded.steps) > 0.01


def test_what_is_cut_off_is_unscored_as_the_twin_drops_it(tmp_path, random_pair):
    model, adapter = random_pair
    (graded,) = our_steps(tmp_path, [CHAT], policy=adapter, model=model, long="last", max_length=80)
    assert_alike(graded, step_grades(load_pair(model, adapter), CHAT, 80, AGGREGATE))
    assert (len(graded.steps), len(graded.unscored)) == (2, 2)
    assert "context" in graded.unscored[0].reason


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fifty_public_trajectories_give_the_twins_grades(tmp_path):
    model = cached_model()
    if model is None or not TAU.exists():
        pytest.skip("needs the embedded model in the cache, and tau_bench under STROP_DATA")
    rows = json.loads(TAU.read_text(encoding="utf-8"))
    chats = [row["traj"] for row in sorted(rows, key=lambda r: (r["task_id"], r["trial"]))[:50]]
    length = int(os.environ.get("STROP_TWIN_CONTEXT") or 2048)
    found = our_steps(tmp_path, chats, policy=ADAPTER, model=model, long="last", max_length=length)
    pair = load_pair(model, ADAPTER)
    compared = sum(
        assert_alike(graded, step_grades(pair, chat, length, AGGREGATE))
        for graded, chat in zip(found, chats, strict=True)
        if graded.steps
    )
    assert compared > 500
