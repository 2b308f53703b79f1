"""Run and judge files: what is read, what is refused, and that every refusal is one line that helps."""

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from strop.config import JudgeConfig, PriceConfig, RunConfig, dump, judge_from_environment, load, load_judge
from strop.errors import ConfigError
from strop.judge import EndpointSettings, JudgeSettings, View
from strop.judge.settings import KEMENY_MOST, Combination, Mode
from strop.judge.view import Images, Repeats

ROLLOUT = '[rollout]\nscenarios = "data/s.jsonl"\nagent = "agent.py:run"\n'


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(ROLLOUT)
    return path


def refusal(path: Path, text: str, *overrides: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_relative_paths_are_relative_to_the_file(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    config = load(run_file)
    assert config.rollout.scenarios == run_file.parent / "data/s.jsonl"
    assert config.rollout.agent == f"{run_file.parent}/agent.py:run"
    assert config.run.directory == run_file.parent / "runs/run"


def test_run_folder_is_named_after_the_file(tmp_path: Path) -> None:
    path = tmp_path / "second.toml"
    path.write_text(ROLLOUT)
    assert load(path).run.directory == tmp_path / "runs/second"


def test_built_in_names_are_no_paths(run_file: Path) -> None:
    run_file.write_text('[rollout]\nscenarios = "demo:order_desk"\nagent = "demo:order_desk"\n')
    rollout = load(run_file).rollout
    assert (rollout.scenarios, rollout.agent) == ("demo:order_desk", "demo:order_desk")


def test_agent_may_be_a_command(run_file: Path) -> None:
    run_file.write_text('[rollout]\nscenarios = "s.jsonl"\nagent = ["node", "agent.js"]\n')
    assert load(run_file).rollout.agent == ("node", "agent.js")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("smollm2", "smollm2"),
        ("org/name", "org/name"),
        ("./mine", "{base}/mine"),
        ("folder", "{base}/folder"),
    ],
)
def test_model_is_a_path_only_where_it_is_one(run_file: Path, written: str, read: str) -> None:
    (run_file.parent / "folder").mkdir()
    run_file.write_text(ROLLOUT + f'[model]\nname = "{written}"\n')
    assert load(run_file).model.name == read.format(base=run_file.parent)


def test_overrides_win_and_are_read_as_toml_or_text(run_file: Path) -> None:
    config = load(
        run_file,
        ["training.steps=3", "model.name=org/name", 'lora.targets=["q_proj"]', "training.kl_coef = 0.5"],
    )
    assert config.training.steps == 3
    assert config.model.name == "org/name"
    assert config.lora.targets == ("q_proj",)
    assert config.training.kl_coef == 0.5


def test_unknown_key_names_file_table_key_and_the_nearest(run_file: Path) -> None:
    text = refusal(run_file, ROLLOUT + "[training]\nlearning_rat = 1e-4\n")
    assert text == "run.toml: [training] learning_rat: unknown key; did you mean learning_rate?"


def test_unknown_key_without_a_near_one_lists_the_known(run_file: Path) -> None:
    text = refusal(run_file, ROLLOUT + "[lora]\nxyzzy = 1\n")
    assert text == "run.toml: [lora] xyzzy: unknown key; known keys: rank, alpha, targets, first_layer"


def test_unknown_table(run_file: Path) -> None:
    text = refusal(run_file, ROLLOUT + "[modell]\nname = 'a'\n")
    assert text == "run.toml: [modell]: unknown table; did you mean model?"


def test_override_mistake_is_laid_to_the_flag(run_file: Path) -> None:
    text = refusal(run_file, ROLLOUT, "training.stepz=3")
    assert text == "--set training.stepz: unknown key; did you mean steps?"


def test_further_mistakes_are_counted(run_file: Path) -> None:
    text = refusal(run_file, ROLLOUT + "[training]\nsteps = 0\nseed = -1\nloss = 'ppo'\n")
    assert text.startswith(
        "run.toml: [training] steps: 0 is not allowed; it must be a whole number at least 1"
    )
    assert text.endswith("(and 2 more)")


@pytest.mark.parametrize(
    ("table", "key", "value", "allowed"),
    [
        ("training", "learning_rate", "5", "a number greater than 0 and at most 1"),
        ("training", "learning_rate", "nan", "a number greater than 0 and at most 1"),
        ("training", "learning_rate", "'1e-4'", "a number greater than 0 and at most 1"),
        ("training", "steps", "true", "a whole number at least 1"),
        ("training", "steps", "2.0", "a whole number at least 1"),
        ("training", "kl", "'k4'", 'one of "k1", "k2", "k3"'),
        ("training", "loss", "'ppo'", 'one of "grpo", "dr_grpo", "dapo", "cispo", "gspo"'),
        ("model", "dtype", "'float16'", 'one of "auto", "float32", "bfloat16"'),
        ("evaluation", "heldout", "-1", "a whole number at least 0 or a path"),
        ("judge", "rubric", "3", "a path"),
        ("judge", "base_url", "'ftp://a'", "text (an http address that ends in /v1"),
        ("lora", "targets", "[]", '"all-linear" or a list of words'),
        ("judge", "mode", "'best'", 'one of "listwise", "pairwise", "pointwise", "logprob"'),
        ("judge", "escalate_below", "1.5", "a number at least 0 and at most 1"),
        ("judge", "most_at_once", "1", "a whole number at least 2"),
        ("judge", "volatile", "'a'", "a list of words"),
        ("judge", "cache", "3", "true or false or a path"),
        ("judge", "prices", "3", "a table"),
        ("judge", "request", "3", "a table"),
    ],
)
def test_value_that_is_not_allowed(run_file: Path, table: str, key: str, value: str, allowed: str) -> None:
    text = refusal(run_file, ROLLOUT + f"[{table}]\n{key} = {value}\n")
    assert text.startswith(f"run.toml: [{table}] {key}: ")
    assert f"is not allowed; it must be {allowed}" in text


@pytest.mark.parametrize("missing", ["scenarios", "agent"])
def test_missing_key(run_file: Path, missing: str) -> None:
    kept = "\n".join(line for line in ROLLOUT.splitlines() if not line.startswith(missing))
    assert refusal(run_file, kept).startswith(f"run.toml: [rollout] {missing}: is missing; it must be")


def test_table_that_is_a_value(run_file: Path) -> None:
    assert (
        refusal(run_file, "model = 3\n" + ROLLOUT)
        == "run.toml: [model]: 3 is not allowed; it must be a table"
    )


def test_missing_table(run_file: Path) -> None:
    assert refusal(run_file, "") == "run.toml: [rollout]: is missing; it must be a table"


@pytest.mark.parametrize("flag", ["steps=3", "training.steps", "a.b.c=1", ".=1"])
def test_override_of_another_form(run_file: Path, flag: str) -> None:
    assert refusal(run_file, ROLLOUT, flag) == f"--set {flag}: must have the form table.key=value"


def test_override_cannot_smuggle_in_a_second_line(run_file: Path) -> None:
    text = refusal(run_file, ROLLOUT, "training.steps=3\nseed=4")
    assert text.startswith("--set training.steps: '3\\nseed=4' is not allowed")


def test_file_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_file_that_is_not_toml(run_file: Path) -> None:
    assert "is not TOML" in refusal(run_file, "x = ")
    run_file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(run_file)


def test_file_that_windows_wrote(run_file: Path) -> None:
    run_file.write_bytes(b"\xef\xbb\xbf" + ROLLOUT.replace("\n", "\r\n").encode())
    assert load(run_file).rollout.scenarios == run_file.parent / "data" / "s.jsonl"


def test_resolved_file_reads_back_equal(run_file: Path) -> None:
    run_file.write_text(
        ROLLOUT + '[lora]\ntargets = ["q_proj", "v_proj"]\n[judge]\nbase_url = "http://127.0.0.1:1/v1"\n'
        'model = "quote \\" slash \\\\ tab \\t del \\u007f é 日 😀"\nvolatile = ["\\\\d+"]\n'
        '[judge.prices."a.b/c d"]\ninput = 0.5\noutput = 2.0\n[judge.request]\nx = {y = [1, true]}\n'
        "[training]\nlearning_rate = 1e-5\n"
    )
    config = load(run_file)
    copy = run_file.parent / "elsewhere" / "run.toml"
    copy.parent.mkdir()
    copy.write_text(dump(config), encoding="utf-8")
    assert load(copy) == config
    assert "adapter" not in tomllib.loads(dump(config))["model"]


def test_config_cannot_be_changed(run_file: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(run_file).training.steps = 3


def models(kind: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [field.annotation for field in kind.model_fields.values()]
    return [kind, *(model for model in inner if isinstance(model, type) and issubclass(model, BaseModel))]


@pytest.mark.parametrize("kind", models(RunConfig)[1:], ids=lambda kind: kind.__name__)
def test_every_key_says_what_it_is(kind: type[BaseModel]) -> None:
    assert [name for name, field in kind.model_fields.items() if not field.description] == []
    assert kind.model_config["extra"] == "forbid"


def test_judge_file(tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    path.write_text('base_url = "https://judge.example/v1"\nmodel = "big"\nrubric = "rubric.md"\n')
    judge = load_judge(path)
    assert (judge.embedded, judge.model, judge.rubric) == (False, "big", tmp_path / "rubric.md")
    path.write_text('modl = "big"\n')
    with pytest.raises(ConfigError) as caught:
        load_judge(path)
    assert str(caught.value) == "judge.toml: modl: unknown key; did you mean model?"


def test_judge_is_embedded_unless_an_endpoint_is_named() -> None:
    assert JudgeConfig().embedded


@pytest.mark.parametrize("line", ['model = "big"', 'base_url = "http://a/v1"'])
def test_judge_endpoint_and_model_belong_together(run_file: Path, line: str) -> None:
    text = refusal(run_file, f"{ROLLOUT}[judge]\n{line}\n")
    assert text.startswith("run.toml: [judge]: base_url and model belong together")


def test_judge_numbers_default_to_the_library_s() -> None:
    """Wherever a key of the judge file is a setting of the library, both say the same."""
    defaults = {
        field.name: field.default
        for kind in (JudgeSettings, View, EndpointSettings)
        for field in fields(kind)
        if field.default is not MISSING
    }
    keys = JudgeConfig.model_fields.keys() & defaults.keys()
    # Where the library counts no failures and keeps no replies, the command does.
    keys -= {"max_failures_in_a_row", "cache"}
    judge = JudgeConfig()
    assert {key: getattr(judge, key) for key in keys} == {key: defaults[key] for key in keys}
    assert keys == defaults.keys() - {"max_failures_in_a_row", "cache", "seed", "price"}
    assert judge.request == EndpointSettings().request


@pytest.mark.parametrize("key", ["mode", "combine", "images", "repeats"])
def test_judge_words_are_those_of_the_library(key: str) -> None:
    library = {"mode": Mode, "combine": Combination, "images": Images, "repeats": Repeats}
    assert get_args(JudgeConfig.model_fields[key].annotation) == get_args(library[key])


def test_prices_by_model(run_file: Path) -> None:
    run_file.write_text(
        ROLLOUT + '[judge.prices."org/big.1"]\ninput = 1\noutput = 10.0\n'
        "[judge.prices.small]\ninput = 0.25\noutput = 2.0\ncached_input = 0.025\n"
    )
    assert load(run_file).judge.prices == {
        "org/big.1": PriceConfig(input=1.0, output=10.0),
        "small": PriceConfig(input=0.25, output=2.0, cached_input=0.025),
    }
    run_file.write_text(ROLLOUT)
    prices = load(run_file, ["judge.prices={m = {input = 1.0, output = 2.0}}"]).judge.prices
    assert prices == {"m": PriceConfig(input=1.0, output=2.0)}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[judge.prices.m]\ninput = 1.0\n", "prices.m.output: is missing; it must be a number at least 0"),
        ("[judge.prices]\nm = 3\n", "prices.m: 3 is not allowed; it must be a table"),
        (
            "[judge.prices.m]\ninput = 1.0\noutput = 1.0\ninptu = 1.0\n",
            "prices.m.inptu: unknown key; did you mean input?",
        ),
        ("[judge.prices.m]\ninput = -1.0\noutput = 1.0\n", "prices.m.input: -1.0 is not allowed; it must be"),
        ("[judge]\nvolatile = ['(']\n", "volatile: '(' is no regular expression"),
        ("[judge.request]\nday = 2026-01-01\n", "request: holds what JSON cannot"),
    ],
)
def test_mistake_inside_a_table_of_the_judge(run_file: Path, table: str, said: str) -> None:
    assert refusal(run_file, ROLLOUT + table).startswith(f"run.toml: [judge] {said}")


def test_a_ceiling_of_money_needs_a_price(run_file: Path) -> None:
    judge = f'{ROLLOUT}[judge]\nbase_url = "http://a/v1"\nmodel = "big"\nmax_money = 2.0\n'
    assert refusal(run_file, judge) == (
        'run.toml: [judge]: max_money needs the price of the model: add prices."big"'
    )
    run_file.write_text(judge + "[judge.prices.big]\ninput = 1.0\noutput = 2.0\n")
    assert load(run_file).judge.max_money == 2.0


def test_an_exact_order_has_a_limit(run_file: Path) -> None:
    assert KEMENY_MOST == 8
    text = refusal(run_file, ROLLOUT + '[judge]\ncombine = "kemeny"\nmost_at_once = 9\n')
    assert text == "run.toml: [judge]: combine: an exact Kemeny order takes at most_at_once up to 8"


def test_the_cache_is_a_switch_or_a_folder(run_file: Path) -> None:
    run_file.write_text(ROLLOUT + '[judge]\ncache = "kept"\n')
    assert load(run_file).judge.cache == run_file.parent / "kept"
    assert load(run_file, ["judge.cache=false"]).judge.cache is False


def test_judge_from_environment() -> None:
    assert judge_from_environment({}) is None
    judge = judge_from_environment({"STROP_JUDGE_BASE_URL": "http://a/v1", "STROP_JUDGE_MODEL": "m"})
    assert judge == JudgeConfig(base_url="http://a/v1", model="m")
    with pytest.raises(ConfigError, match="belong together"):
        judge_from_environment({"STROP_JUDGE_MODEL": "m"})
    with pytest.raises(ConfigError, match="STROP_JUDGE_BASE_URL: 'a' is no address"):
        judge_from_environment({"STROP_JUDGE_BASE_URL": "a", "STROP_JUDGE_MODEL": "m"})
