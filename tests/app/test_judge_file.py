"""strop judge against a planted judge over loopback: what is kept, what is paid, and what is said."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strop.cli.main import main
from strop.judge.planted import BadReply, Faults, Planted, PlantedServer, Service

Err = pytest.CaptureFixture[str]
Json = dict[str, Any]

MANY = 1000
PATIENCE_S = 120.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedServer]:
    monkeypatch.setenv("PLANTED_KEY", "right")
    with PlantedServer(Planted(noise=0.1), service=Service(model="planted", api_key="right")) as running:
        yield running


def groups_file(path: Path, groups: int, size: int = 4) -> Path:
    """Groups of attempts whose lines stand mixed up in the file; the last attempt is the best."""
    lines = [
        {
            "trajectory_id": f"g{group}-{place}",
            "group_id": f"g{group}",
            "messages": [
                {"role": "user", "content": f"task {group}"},
                {"role": "assistant", "content": f"said in {group}: quality={(place + 1) / (size + 1):.2f}"},
            ],
        }
        for place in range(size)
        for group in range(groups)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def judge_toml(path: Path, url: str, **keys: object) -> Path:
    settings = {"base_url": url, "model": "planted", "api_key_env": "PLANTED_KEY", "orders": 2} | keys
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
    path.write_text("".join(lines) + "[prices.planted]\ninput = 1.0\noutput = 10.0\n")
    return path


@pytest.fixture
def arguments(tmp_path: Path) -> Callable[..., list[str]]:
    """The command line for so many groups and a judge at an address, with further keys of its file."""

    def build(groups: int, url: str, **keys: object) -> list[str]:
        file = groups_file(tmp_path / "groups.jsonl", groups)
        toml = judge_toml(tmp_path / "judge.toml", url, **keys)
        return ["judge", str(file), "--judge", str(toml), "--out", str(tmp_path / "scores.jsonl"), "--json"]

    return build


def lines_of(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def printed(capsys: Err) -> tuple[Json, str]:
    """The result object, and the one line of ours on standard error, "" where there is none."""
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines() if line.startswith("strop: ")]
    assert len(said) <= 1
    return json.loads(out) if out else {}, "".join(said)


def adds_up(result: Json, server: PlantedServer) -> None:
    """The totals are those of the judge's own account: 1 dollar a million tokens in, 10 out."""
    served = server.served
    assert result["calls"] - result["unmetered"] == served.requests
    assert result["tokens_in"] == served.prompt_tokens
    assert result["tokens_out"] == served.completion_tokens
    assert result["money"] == pytest.approx((served.prompt_tokens + 10 * served.completion_tokens) / 1e6)


def none_paid_twice(server: PlantedServer) -> None:
    asked = Counter(json.dumps(e.body["messages"]) for e in server.exchanges if e.status == 200)
    assert asked
    assert asked.most_common(1)[0][1] == 1


def test_a_file_is_judged_and_again_for_nothing(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(6, server.base_url)
    assert main(call) == 0
    result, _ = printed(capsys)
    adds_up(result, server)
    assert (result["groups"], result["judged"], result["scored"], result["unscored"]) == (6, 6, 6, 0)
    assert (result["failures"], result["cached"], result["forecast"]) == ({}, 0, None)
    verdicts = lines_of(tmp_path / "scores.jsonl")
    assert [verdict["group_id"] for verdict in verdicts] == [f"g{i}" for i in range(6)]
    assert all(v["scores"][f"{v['group_id']}-0"] < v["scores"][f"{v['group_id']}-3"] for v in verdicts)
    known = [v["reliability"] for v in verdicts]
    assert result["reliability"]["estimate"] == pytest.approx(sum(known) / 6)

    served = server.served
    assert main(call) == 0
    again, _ = printed(capsys)
    assert server.served == served
    assert (again["calls"], again["money"], again["cached"]) == (0, 0.0, result["calls"])
    assert [v["scores"] for v in lines_of(tmp_path / "scores.jsonl")] == [v["scores"] for v in verdicts]


def test_the_environment_names_the_judge_where_no_file_does(
    tmp_path: Path, server: PlantedServer, monkeypatch: pytest.MonkeyPatch, capsys: Err
) -> None:
    named = {"BASE_URL": server.base_url, "MODEL": "planted", "API_KEY": "right"}
    for name, value in named.items():
        monkeypatch.setenv(f"STROP_JUDGE_{name}", value)
    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))
    file = groups_file(tmp_path / "groups.jsonl", 3)
    assert main(["judge", str(file), "--out", str(tmp_path / "s.jsonl"), "--json"]) == 0
    result, _ = printed(capsys)
    assert (result["scored"], result["calls"], result["money"]) == (3, server.served.requests, None)


def test_without_a_cache_it_is_paid_again(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(2, server.base_url, cache=False)
    assert main(call) == main(call) == 0
    assert server.served.requests >= 8


def test_only_messages_are_needed(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(1, server.base_url)
    said = [f"quality={quality}" for quality in (0.2, 0.9)]
    chats = [[{"role": "user", "content": "go"}, {"role": "assistant", "content": text}] for text in said]
    Path(call[1]).write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    assert main(call) == 0
    (verdict,) = lines_of(tmp_path / "scores.jsonl")
    worse, better = sorted(verdict["scores"], key=lambda name: int(name[1 : name.index("-")]))
    assert verdict["scores"][worse] < verdict["scores"][better]


def test_the_table_says_what_it_cost(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    assert main(arguments(3, server.base_url)[:-1]) == 0
    out, err = capsys.readouterr()
    cells = [line.strip("│ ").split("│") for line in out.splitlines() if line.startswith("│")]
    rows = {cell[0].strip(): cell[-1].strip() for cell in cells if cell[0].strip()}
    assert rows["calls"] == str(server.served.requests)
    assert rows["money"].startswith("$0.0")
    assert "n = 3" in rows["reliability"]
    assert "judging" in err


def test_without_a_price_it_says_so(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(1, server.base_url)
    toml = Path(call[3])
    toml.write_text(toml.read_text().partition("[prices")[0])
    assert main(call) == 0
    assert printed(capsys)[0]["money"] is None
    assert main(call[:-1]) == 0


def test_a_storm_of_429_costs_patience_only(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    server.faults = Faults(refuse_next=12, retry_after_s=0.05)
    assert main(arguments(8, server.base_url)) == 0
    result, _ = printed(capsys)
    assert (result["scored"], result["retried"]) == (8, {"429": 12})
    adds_up(result, server)
    none_paid_twice(server)


def test_a_server_that_dies_and_comes_back(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    server.faults = Faults(latency_s=0.02, hang_next=1)

    def break_it() -> None:
        while server.served.requests < 6:
            time.sleep(0.005)
        server.stop()
        time.sleep(0.2)
        server.start()

    breaking = threading.Thread(target=break_it)
    breaking.start()
    assert main(arguments(12, server.base_url)) == 0
    breaking.join()
    result, _ = printed(capsys)
    assert (result["scored"], result["unscored"]) == (12, 0)
    assert result["retried"].keys() <= {"lost", "unreached"}
    assert sum(result["retried"].values()) > 0
    adds_up(result, server)
    none_paid_twice(server)


def test_a_dead_server_ends_it_with_one_line(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    server.stop()  # its port stays its own, so that nobody else can answer there
    call = arguments(9, server.base_url, patience_s=0, max_failures_in_a_row=2, concurrency=1)
    assert main(call) == 3
    result, said = printed(capsys)
    assert "no verdict for 2 groups in a row (transport: " in said
    assert "2 of 9 groups are in" in said
    assert (result["judged"], result["scored"], result["failures"]) == (2, 0, {"transport": 2})
    assert [v["group_id"] for v in lines_of(tmp_path / "scores.jsonl")] == ["g0", "g1"]


def test_groups_that_need_no_call_do_not_hide_a_dead_judge(
    tmp_path: Path, arguments: Callable[..., list[str]], server: PlantedServer, capsys: Err
) -> None:
    server.stop()
    call = arguments(8, server.base_url, patience_s=0, max_failures_in_a_row=3, concurrency=1)
    file = tmp_path / "groups.jsonl"
    lines = lines_of(file)
    for line in lines:
        if int(line["group_id"][1:]) % 2:
            line["messages"][1]["content"] = "all say the same"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(call) == 3
    result, said = printed(capsys)
    assert "no verdict for 3 groups in a row (transport: " in said
    assert (result["judged"], result["scored"]) == (5, 2)


def test_a_judge_that_answers_nobody_is_said_where_some_groups_need_no_call(
    tmp_path: Path, arguments: Callable[..., list[str]], server: PlantedServer, capsys: Err
) -> None:
    call = arguments(2, "http://127.0.0.1:9/v1", patience_s=0, max_failures_in_a_row=0)
    file = tmp_path / "groups.jsonl"
    lines = lines_of(file)
    file.write_text(
        "".join(
            json.dumps(line | {"messages": lines[0]["messages"]} if line["group_id"] == "g0" else line) + "\n"
            for line in lines
        )
    )
    assert main(call) == 3
    assert "no verdict for any of 1 groups" in printed(capsys)[1]


def test_bad_replies_end_it_and_are_kept_for_a_better_parser(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    server.judge = Planted(bad_replies={BadReply.MISSING_ID: 1.0})
    assert main(arguments(9, server.base_url, max_failures_in_a_row=3, concurrency=1)) == 3
    result, said = printed(capsys)
    assert "no verdict for 3 groups in a row (missing_ids: " in said
    adds_up(result, server)
    verdicts = lines_of(tmp_path / "scores.jsonl")
    assert len(verdicts) == 3
    assert all(reply["text"] for verdict in verdicts for reply in verdict["replies"])


def test_a_ceiling_ends_it_and_a_higher_one_goes_on(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    assert main(arguments(9, server.base_url, max_calls=6, concurrency=1)) == 3
    result, said = printed(capsys)
    assert "ceiling" in said
    assert "not paid again" in said
    assert server.served.requests == 6
    assert 0 < result["judged"] < 9
    assert result["forecast"]["groups_left"] == 9 - result["judged"]
    assert main(arguments(9, server.base_url, max_calls=60)) == 0
    assert printed(capsys)[0]["scored"] == 9
    none_paid_twice(server)


@pytest.mark.parametrize(
    ("keys", "said"), [({"api_key_env": "PATH"}, "the key was refused"), ({"model": "big"}, "no such model")]
)
def test_a_judge_that_refuses_is_one_line_and_touches_nothing(
    tmp_path: Path,
    server: PlantedServer,
    arguments: Callable[..., list[str]],
    capsys: Err,
    keys: Json,
    said: str,
) -> None:
    (tmp_path / "scores.jsonl").write_text("earlier work\n")
    assert main(arguments(5, server.base_url, **keys)) == 3
    result, line = printed(capsys)
    assert result == {}
    assert said in line
    assert (tmp_path / "scores.jsonl").read_text() == "earlier work\n"


def test_the_judged_file_is_never_written_over(
    server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(1, server.base_url)
    assert main([*call[:4], "--out", call[1]]) == 2
    assert "is the file that is judged" in printed(capsys)[1]
    assert server.served.requests == 0


def started(call: list[str], tmp_path: Path, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    environ = {**os.environ, "STROP_CACHE": str(tmp_path / "cache"), "PLANTED_KEY": "right"}
    return subprocess.Popen(
        [sys.executable, "-m", "strop.cli.main", *call],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_said(process: subprocess.Popen[str], word: str) -> None:
    """Read standard error up to the first line with `word` in it."""
    assert process.stderr is not None
    assert any(word in line for line in process.stderr)


def hanging(server: PlantedServer) -> float:
    return MANY - server.faults.hang_next if server.faults.hang_next else 0


def ended(process: subprocess.Popen[str]) -> tuple[int, Json, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    said = [line for line in err.splitlines() if line.startswith("strop: ")]
    assert "Traceback" not in err
    return process.returncode, json.loads(out) if out else {}, "\n".join(said)


def test_ctrl_c_ends_in_good_order_and_nothing_is_lost_or_paid_twice(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]]
) -> None:
    call = arguments(12, server.base_url, concurrency=3)
    server.change_after(8, Faults(hang_next=MANY))
    process = started(call, tmp_path)
    wait_until(lambda: hanging(server) == 3)
    process.send_signal(signal.SIGINT)
    until_said(process, "stopping")
    before = server.served.requests
    server.release()
    code, first, said = ended(process)
    assert code == 130
    assert said.startswith("strop: interrupted; ")
    assert "run the same command to go on" in said
    adds_up(first, server)
    assert server.served.requests == before + 3
    kept = [verdict["group_id"] for verdict in lines_of(tmp_path / "scores.jsonl")]
    assert 0 < len(kept) == first["judged"] < 12
    assert kept == sorted(kept, key=lambda name: int(name[1:]))

    server.faults = Faults()
    before = server.served.requests
    code, second, said = ended(started(call, tmp_path))
    assert (code, said, second["scored"]) == (0, "", 12)
    assert second["calls"] == server.served.requests - before
    assert second["cached"] == before
    none_paid_twice(server)


def test_a_second_ctrl_c_ends_at_once(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]]
) -> None:
    call = arguments(12, server.base_url, concurrency=1)
    groups = len({json.loads(line)["group_id"] for line in Path(call[1]).read_text().splitlines()})
    server.change_after(4, Faults(hang_next=MANY))
    process = started(call, tmp_path)
    wait_until(lambda: hanging(server) > 0)
    process.send_signal(signal.SIGINT)
    until_said(process, "stopping")
    process.send_signal(signal.SIGINT)
    code, result, said = ended(process)
    assert (code, said.startswith("strop: interrupted; ")) == (130, True)
    assert 0 < result["judged"] < groups


def test_killed_it_goes_on_where_it_was(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]]
) -> None:
    call = arguments(10, server.base_url, concurrency=3)
    server.change_after(5, Faults(hang_next=MANY))
    process = started(call, tmp_path)
    cache = tmp_path / "cache"
    wait_until(lambda: hanging(server) == 3 and len([*cache.rglob("*.json")]) == server.served.requests)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    before = server.served.requests
    server.faults = Faults()
    code, result, _ = ended(started(call, tmp_path))
    assert (code, result["scored"], result["cached"]) == (0, 10, before)
    assert result["calls"] == server.served.requests - before
    none_paid_twice(server)


@pytest.mark.parametrize("most", [200, 6000])
def test_a_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], most: int
) -> None:
    """The limit on a file's size stands in for the disk: 200 bytes hold no reply, 6000 not all verdicts."""
    call = arguments(6, server.base_url)
    (tmp_path / "scores.jsonl").write_text("earlier work\n")
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))}
    code, result, said = ended(started(call, tmp_path, **limit))
    assert (code, result) == (2, {})
    assert said.count("cannot be written") == 1
    assert (tmp_path / "scores.jsonl").read_text() == "earlier work\n"
    kept = len([*(tmp_path / "cache").rglob("*.json")])
    assert kept == (0 if most == 200 else server.served.requests)
    code, result, _ = ended(started(call, tmp_path))
    assert (code, result["scored"], result["cached"]) == (0, 6, kept)


def test_what_cannot_end_well_is_said_before_anything_is_paid(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(2, server.base_url)
    in_the_way = [*call[:4], "--out", str(tmp_path / "judge.toml" / "scores.jsonl"), "--json"]
    assert main(in_the_way) == 2
    assert "a file is where a folder is needed" in printed_error(capsys)
    file = tmp_path / "groups.jsonl"
    lines = lines_of(file)
    file.write_text("".join(json.dumps(line | {"trajectory_id": "same"}) + "\n" for line in lines))
    assert main(call) == 2
    assert "groups.jsonl: group 'g0' holds trajectory_id 'same' twice; make them differ" in printed_error(
        capsys
    )
    assert server.served.requests == 0


def printed_error(capsys: Err) -> str:
    """What a command said that printed no result."""
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_what_is_shown_is_what_is_sent(
    server: PlantedServer,
    arguments: Callable[..., list[str]],
    capsys: Err,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = arguments(3, server.base_url, escalate_below=0)
    monkeypatch.delenv("PLANTED_KEY")
    assert main([*call[:4], "--show", "--group", "g1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [sorted(prompt["shown"].values()) for prompt in shown["prompts"]] == [
        [f"g1-{i}" for i in range(4)]
    ] * 2
    assert server.served.requests == 0
    monkeypatch.setenv("PLANTED_KEY", "right")
    assert main(call) == 0
    sent = [exchange.body["messages"] for exchange in server.exchanges]
    assert [prompt["messages"] in sent for prompt in shown["prompts"]] == [True, True]


def test_a_shown_prompt_is_readable_and_loads_no_engine(arguments: Callable[..., list[str]]) -> None:
    call = arguments(1, "http://127.0.0.1:9/v1")
    code = (
        "import sys\nfrom strop.cli.main import main\n"
        f"assert main({[*call[:4], '--show']!r}) == 0\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "group g0, prompt 1 of 2" in done.stdout
    assert "assistant: said in 0: quality=0.20" in done.stdout
    assert "── system\n" in done.stdout


def test_show_says_why_nothing_is_asked(
    tmp_path: Path, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    call = arguments(1, "http://127.0.0.1:9/v1")
    groups_file(Path(call[1]), 1, size=1)
    assert main([*call[:4], "--show"]) == 0
    assert "no call" in capsys.readouterr().out
    assert main([*call[:4], "--show", "--group", "g9"]) == 2
    assert "--group g9: " in printed(capsys)[1]


def test_replay_reads_raw_replies_again(
    tmp_path: Path, server: PlantedServer, arguments: Callable[..., list[str]], capsys: Err
) -> None:
    assert main(arguments(4, server.base_url)) == 0
    scores, new = tmp_path / "scores.jsonl", tmp_path / "new.jsonl"
    verdicts = lines_of(scores)
    # As an older parser might have read them: one verdict lost, another with a wrong score.
    lost = {**verdicts[1], "scores": None, "failure": "no_json", "detail": "", "explanations": {}}
    wrong = {**verdicts[2], "scores": dict.fromkeys(verdicts[2]["scores"], 0.25)}
    old = [verdicts[0], lost, wrong, verdicts[3]]
    scores.write_text("".join(json.dumps(verdict) + "\n" for verdict in old))
    served = server.served
    capsys.readouterr()
    assert main(["judge", "--replay", str(scores), "--out", str(new), "--json"]) == 0
    assert printed(capsys)[0] == {
        "verdicts": 4,
        "before": {"no_json": 1, "ok": 3},
        "after": {"ok": 4},
        "moved": {"no_json -> ok": 1},
        "rescored": ["g2"],
        "out": str(new),
    }
    assert [v["scores"] for v in lines_of(new)] == [v["scores"] for v in verdicts]
    assert server.served == served
    assert main(["judge", "--replay", str(scores), "--out", str(scores)]) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no verdict"),
        ('{"schema": 1}\n', "old.jsonl:1: verdict of schema 1"),
        ("{\n", "old.jsonl:1: not"),
    ],
)
def test_replay_names_the_bad_line(tmp_path: Path, capsys: Err, text: str, said: str) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text(text)
    assert main(["judge", "--replay", str(old), "--out", str(new)]) == 2
    assert said in printed(capsys)[1]
    assert not new.exists()
