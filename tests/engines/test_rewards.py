"""Trained reward models beside transformers' own calls: no batch, padding or cut changes a score."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer

from reward_twin import SAID, at_ends, built, chat, marked_ids, saved, template_ids
from strop.engines.local.reward_kind import RewardConfig
from strop.engines.local.rewards import LocalRewards
from strop.errors import ConfigError, ModelError

TWO = {"num_labels": 2}
SHORT = [("user", "hi"), ("assistant", "ho")]
BERT = {"num_attention_heads": 4, "max_position_embeddings": 512}
pytestmark = pytest.mark.usefixtures("one_thread")


def rewards(folder, **fields):
    return LocalRewards(RewardConfig(**({"model": folder, "dtype": "float32", "device": "cpu"} | fields)))


@pytest.mark.parametrize(
    ("name", "config", "fields", "one_pass"),
    [
        ("LlamaForSequenceClassification", "LlamaConfig", {}, True),
        ("Qwen3ForSequenceClassification", "Qwen3Config", {"head_dim": 16}, True),
        ("GPT2ForSequenceClassification", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4}, True),
        ("BertForSequenceClassification", "BertConfig", BERT, False),
    ],
)
def test_a_conversation_is_scored_at_each_step_as_if_it_ended_there(tmp_path, name, config, fields, one_pass):
    model = built(name, config, num_labels=1, **fields)
    folder = saved(model, tmp_path / "rm")
    found = rewards(folder)
    assert (found.model.parts.body is not None) == one_pass
    (scored,) = found.score([chat()])
    expected = at_ends(model, folder, chat())[:, 0].tolist()
    assert scored.values == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == 3
    assert scored.whole == scored.values[-1]
    assert (scored.unscored, scored.reason) == ((), None)


def test_a_body_that_sees_ahead_is_not_read_in_one_pass(tmp_path):
    fields = {"head_dim": 16, "query_pre_attn_scalar": 16, "use_bidirectional_attention": True}
    model = built("Gemma3TextForSequenceClassification", "Gemma3TextConfig", num_labels=1, **fields)
    folder = saved(model, tmp_path / "rm")
    found = rewards(folder)
    assert found.model.parts.body is None
    expected = at_ends(model, folder, chat())[:, 0].tolist()
    assert found.score([chat()])[0].values == pytest.approx(expected, abs=1e-5)


def test_where_padding_is_the_token_that_ends_a_turn_the_token_before_it_is_read(tmp_path):
    model = built("LlamaForSequenceClassification", "LlamaConfig", num_labels=1, pad_token_id=2)
    folder = saved(model, tmp_path / "rm")
    expected = at_ends(model, folder, chat())[:, 0].tolist()
    assert rewards(folder).score([chat()])[0].values == pytest.approx(expected, abs=1e-5)
    model.config.pad_token_id = None
    assert at_ends(model, folder, chat())[:, 0].tolist() != pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "LlamaForTokenClassification"])
def test_neighbours_and_padding_change_nothing(tmp_path, name):
    folder = saved(built(name, "LlamaConfig", **TWO), tmp_path / "rm", extra=True)
    many = [chat(SAID, "long"), chat(SHORT, "short"), chat(SAID[:5], "middle")]
    found = rewards(folder)
    together = found.score(many)
    assert [one.trajectory_id for one in together] == ["long", "short", "middle"]
    for one, trajectory in zip(together, many, strict=True):
        (alone,) = found.score([trajectory])
        assert one.values == pytest.approx(alone.values, abs=1e-6)
    assert together[2].values == pytest.approx(together[0].values[:2], abs=1e-6)


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "LlamaForTokenClassification"])
def test_what_does_not_fit_is_unscored_and_the_rest_is_unchanged(tmp_path, name):
    folder = saved(built(name, "LlamaConfig", **TWO), tmp_path / "rm", extra=True)
    (whole,) = rewards(folder).score([chat()])
    (cut,) = rewards(folder, max_length=90).score([chat()])
    assert cut.values[:1] == pytest.approx(whole.values[:1], abs=1e-6)
    assert cut.values[1:] == (None, None)
    assert cut.whole is None
    assert [(step.index, step.message_index) for step in cut.unscored] == [(1, 4), (2, 6)]
    assert "the reward model reads 90" in cut.unscored[0].reason
    (nothing,) = rewards(folder, max_length=8).score([chat()])
    assert nothing.values == (None, None, None)


def test_two_labels_are_the_probability_of_the_good_one(tmp_path):
    model = built("LlamaForSequenceClassification", "LlamaConfig", **TWO)
    folder = saved(model, tmp_path / "rm")
    expected = torch.softmax(at_ends(model, folder, chat()), -1)[:, 1].tolist()
    assert rewards(folder).score([chat()])[0].values == pytest.approx(expected, abs=1e-6)
    named = saved(model, tmp_path / "named", id2label={0: "correct", 1: "incorrect"})
    other = rewards(named).score([chat()])[0].values
    assert other == pytest.approx([1 - value for value in expected], abs=1e-6)
    assert rewards(named, good="incorrect").score([chat()])[0].values == pytest.approx(expected, abs=1e-6)


def test_labels_that_do_not_exclude_each_other_keep_their_logits(tmp_path):
    model = built("LlamaForSequenceClassification", "LlamaConfig", num_labels=3)
    folder = saved(model, tmp_path / "rm", problem_type="regression")
    with pytest.raises(ConfigError, match=r"3 labels .*--reward-good"):
        rewards(folder)
    expected = at_ends(model, folder, chat())[:, 2].tolist()
    assert rewards(folder, good="2").score([chat()])[0].values == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "config", "fields", "one_pass"),
    [
        ("LlamaForTokenClassification", "LlamaConfig", {}, True),
        ("BertForTokenClassification", "BertConfig", BERT, False),
    ],
)
def test_steps_are_read_at_the_marker_after_them(tmp_path, name, config, fields, one_pass):
    model = built(name, config, **TWO, **fields)
    folder = saved(model, tmp_path / "rm")
    found = rewards(folder, marker="\\n")
    assert (found.model.parts.body is not None) == one_pass
    (scored,) = found.score([chat()])
    newline = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("\n")
    ids, places = marked_ids(folder, chat(), newline)
    with torch.no_grad():
        expected = torch.softmax(model(input_ids=torch.tensor([ids])).logits[0], -1)[places, 1].tolist()
    assert scored.values == pytest.approx(expected, abs=1e-5)
    assert scored.whole is None


def test_steps_of_a_model_that_sees_ahead_are_scored_only_where_all_fits(tmp_path):
    model = built("BertForTokenClassification", "BertConfig", **TWO, **BERT)
    folder = saved(model, tmp_path / "rm", extra=True)
    (cut,) = rewards(folder, max_length=90).score([chat()])
    assert cut.values == (None, None, None)
    assert len(cut.unscored) == 3


def test_qwen_math_prm(tmp_path):
    model = built("Qwen2ForProcessRewardModel", "Qwen2Config", **TWO)
    code = {"auto_map": {"AutoModel": "modeling_qwen2_rm.Qwen2ForProcessRewardModel"}}
    folder = saved(model, tmp_path / "prm", extra=True, **code)
    (scored,) = rewards(folder).score([chat()])
    ids, places = marked_ids(folder, chat(), AutoTokenizer.from_pretrained(folder).encode("<extra_0>")[-1])
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([ids]))[0], -1)[places, 1].tolist()
    assert scored.values == pytest.approx(expected, abs=1e-6)
    assert max(expected) - min(expected) > 1e-3


def test_qwen_math_rm_has_one_output_whatever_its_config_says(tmp_path):
    model = built("Qwen2ForRewardModel", "Qwen2Config", num_labels=1)
    folder = saved(model, tmp_path / "rm", id2label={"0": "LABEL_0", "1": "LABEL_1"})
    (scored,) = rewards(folder).score([chat()])
    spoken = [i for i, m in enumerate(chat().messages) if m["role"] == "assistant"]
    prefixes = [template_ids(folder, chat().messages[: i + 1]) for i in spoken]
    with torch.no_grad():
        expected = [model(torch.tensor([ids]))[0, -1, 0].item() for ids in prefixes]
    assert scored.values == pytest.approx(expected, abs=1e-5)
    assert scored.whole == scored.values[-1]


def test_in_bfloat16_only_rounding_differs(tmp_path):
    model = built("LlamaForSequenceClassification", "LlamaConfig", num_labels=1)
    folder = saved(model, tmp_path / "rm")
    found = rewards(folder, dtype="bfloat16")
    assert found.model.parts.body is not None
    expected = at_ends(model.to(torch.bfloat16), folder, chat())[:, 0].tolist()
    assert found.score([chat()])[0].values == pytest.approx(expected, abs=0.05 * max(map(abs, expected)))


@pytest.mark.parametrize(
    ("name", "config", "fields"),
    [
        ("LlamaForCausalLM", "LlamaConfig", {}),
        (
            "Gemma2ForCausalLM",
            "Gemma2Config",
            {"head_dim": 16, "query_pre_attn_scalar": 16, "final_logit_softcapping": 2.0},
        ),
    ],
)
def test_math_shepherd_reads_the_odds_of_two_words(tmp_path, name, config, fields):
    model = built(name, config, **fields)
    folder = saved(model, tmp_path / "prm", template=False)
    found = rewards(folder, marker="K", good="y", bad="n")
    assert not found.chat
    (scored,) = found.score([chat(SAID[1:])])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "<s>[user]: where is it?\n[assistant]: let me see\nK\n[user]: well?\n[assistant]: In the hall.\nK"
    ids = tokenizer.encode(text + "\n[user]: sure\n[assistant]: yes, quite sure\nK", add_special_tokens=False)
    good, bad, marker = tokenizer.convert_tokens_to_ids(["y", "n", "K"])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    expected = [(logits[i, good] - logits[i, bad]).item() for i, token in enumerate(ids) if token == marker]
    assert scored.values == pytest.approx(expected, abs=1e-4)


def test_calls_are_a_part_of_the_step_and_stand_before_its_marker(tmp_path):
    folder = saved(built("LlamaForTokenClassification", "LlamaConfig", **TWO), tmp_path / "rm", extra=True)
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = (
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )
    found = rewards(folder)
    (with_call,) = found.score([replace(chat(), messages=messages)])
    text = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    (as_text,) = found.score([chat([("user", "go"), ("assistant", text)])])
    assert with_call.values == pytest.approx(as_text.values, abs=1e-6)


def test_a_run_without_a_step_says_so(tmp_path):
    folder = saved(built("LlamaForSequenceClassification", "LlamaConfig", num_labels=1), tmp_path / "rm")
    silent, spoken = rewards(folder).score([chat(SAID[:2]), chat(SHORT)])
    assert silent.values == ()
    assert "no message of the assistant" in silent.reason
    assert spoken.whole is not None


def test_every_message_of_a_log_of_several_agents_is_a_step(tmp_path):
    model = built("LlamaForSequenceClassification", "LlamaConfig", num_labels=1)
    folder = saved(model, tmp_path / "rm")
    said = [("human", "do it"), ("Planner", "plan"), ("Coder", ""), ("Coder", "code")]
    (scored,) = rewards(folder, text="plain-all").score([chat(said)])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "<s>[human]: do it\n[Planner]: plan"
    with torch.no_grad():
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        expected = model(input_ids=ids).logits[0, 0].item()
    assert [value is None for value in scored.values] == [True, False, True, False]
    assert scored.values[1] == pytest.approx(expected, abs=1e-5)
    assert scored.unscored == ()


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("LlamaForCausalLM", {}, "at which token"),
        ("LlamaForCausalLM", {"marker": "K"}, "--reward-good and --reward-bad"),
        ("LlamaForCausalLM", {"marker": "K", "good": "yes", "bad": "n"}, "3 tokens; one is needed"),
        ("LlamaForCausalLM", {"marker": "K", "good": "y", "bad": "y"}, "the same token"),
        ("LlamaForCausalLM", {"kind": "sequence"}, "read as words, not sequence"),
        ("LlamaForTokenClassification", {}, "--reward-marker"),
        ("LlamaModel", {}, "no reward model that can be read"),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_line(tmp_path, name, fields, said):
    folder = saved(built(name, "LlamaConfig"), tmp_path / "rm")
    with pytest.raises((ConfigError, ModelError), match=said) as refused:
        rewards(folder, **fields)
    assert "\n" not in str(refused.value)


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    folder = saved(
        built("LlamaForCausalLM", "LlamaConfig"),
        tmp_path / "rm",
        architectures=["LlamaForSequenceClassification"],
        id2label={0: "LABEL_0"},
    )
    with pytest.raises(ModelError, match="needs its trained head"):
        rewards(folder)


def test_an_adapter_is_refused(tmp_path):
    folder = saved(built("LlamaForSequenceClassification", "LlamaConfig"), tmp_path / "rm")
    (tmp_path / "rm" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="merge it into its base"):
        rewards(folder)
