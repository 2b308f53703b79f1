"""Our judge beside openpipe-art's RULER: prompt tokens, groups a second, scores that land wrongly.

    python -m benchmarks.judge --peer-python ART/bin/python [--json] [--pairs 5]

Both judge the same groups with the same planted judge behind HTTP on this machine, each with its own
default rubric. The groups are 50 public airline tasks of 4 attempts (data/tau_bench under STROP_DATA)
and groups of 6 attempts at the order desk by its scripted clerk. The peer pins old libraries, so it
gets an environment of its own, made once with Python 3.11:

    python3.11 -m venv ART && ART/bin/pip install openpipe-art==0.5.18

Name it with --peer-python or in STROP_PEER_PYTHON. Without it our side is measured alone, and without
the public data the order desk alone; what is missing is said. The ratio printed is their seconds over
ours on all pairs, ours with its default of two calls a group, theirs with its one.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import Outcome, check, check_line
from benchmarks.ruler.groups import desk_groups, find_tau, marked
from benchmarks.ruler.ours import DEFAULT, ONE_CALL, Run, judged
from benchmarks.ruler.process import PACKAGE, Peer, environment
from benchmarks.ruler.rightness import our_scores, tally, their_scores
from benchmarks.ruler.serving import planted
from benchmarks.ruler.speed import MODEL, Race, own_time, race, their_own_time
from benchmarks.ruler.tokens import JUDGES, Count, distinct, our_tokens, savings, shown_tokens, token_counter
from benchmarks.sides.peer import find_peer
from strop.engines.embedded import cached_model
from strop.judge import Endpoint
from strop.judge.planted import BadReply, Planted, spread
from strop.trajectory.model import Group

LATENCY_S = 0.05
AT_ONCE = 32
BAD_SHARE = 0.05
TOKENS_LIMIT, OWN_MS_LIMIT, SPEED_LIMIT = 0.7, 2.0, 1.0
DESK_TOKENS, DESK_TIMED, DESK_SPOILT, TAU_ROUNDS = 300, 200, 600, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every part needs. `peer` is None where there is none."""

    run: Run
    peer: Peer | None
    tau: Sequence[Group]
    pairs: int


def tokens(bench: Bench, groups: Sequence[Group], count: Count) -> dict[str, Any]:
    """Prompt tokens a group."""
    found: dict[str, Any] = {"groups": len(groups), "ours": our_tokens(groups, bench.run, count)}
    if bench.peer is None:
        return found
    ours, theirs = found["ours"], shown_tokens(groups, bench.peer, count) / len(groups)
    ways = ("one_call", "two_calls", *(f"default_{judge}" for judge in JUDGES))
    return {
        **found,
        "theirs": round(theirs, 1),
        "ours_over_theirs": {way: round(ours[way] / theirs, 3) for way in ways},
        "saved_at_one_call": savings(groups, ours, theirs, bench.peer, count),
    }


def speed(bench: Bench, groups: Sequence[Group]) -> tuple[Race, dict[str, Any]]:
    """Groups a second at a fixed latency, and each side's own time."""
    with planted(Planted(), LATENCY_S) as url:
        raced = race(groups, url, AT_ONCE, bench.pairs, bench.run, bench.peer)
        found: dict[str, Any] = {
            "groups": len(groups),
            "ours_one_call": raced.one_call.summary(),
            "ours_default": raced.default.summary(),
            "own_time_one_call": own_time(groups, ONE_CALL, bench.pairs, bench.run),
            "own_time_default": own_time(groups, DEFAULT, bench.pairs, bench.run),
        }
        if bench.peer is not None and raced.theirs is not None:
            found["theirs"] = raced.theirs.summary()
            found["own_time_theirs"] = their_own_time(groups, url, bench.pairs, bench.peer)
            ways = {"one_call": raced.one_call, "default": raced.default}
            found["times_theirs"] = {way: round(raced.theirs.over(own), 3) for way, own in ways.items()}
    return raced, found


def rightness(bench: Bench, groups: Sequence[Group], judge: Planted) -> dict[str, Any]:
    """Scores that landed on another attempt, and attempts without one, on replies as `judge` gives them."""
    with planted(judge) as url:
        endpoint = Endpoint(url, "none", MODEL)
        found = {
            name: tally(groups, our_scores(bench.run(judged(endpoint, groups, way, AT_ONCE))))
            for name, way in (("ours_one_call", ONE_CALL), ("ours_default", DEFAULT))
        }
        if bench.peer is not None:
            answer = bench.peer.score(groups, "ask", base_url=url, at_once=AT_ONCE)
            found["theirs"] = tally(groups, their_scores(answer, groups)) | {"raised": answer["errors"]}
    return found


def measure(bench: Bench, count: Count) -> tuple[Race, dict[str, Any]]:
    """All parts on both data sets; the race is the one on public data, or on the desk without it."""
    sets = {"tau_bench": bench.tau} if bench.tau else {}
    counted = {**sets, "order_desk": desk_groups(DESK_TOKENS)}
    timed = {name: [marked(g) for g in groups] * TAU_ROUNDS for name, groups in sets.items()}
    timed["order_desk"] = [marked(group) for group in desk_groups(DESK_TIMED)]
    material = [marked(g) for g in [*bench.tau, *desk_groups(DESK_SPOILT)]]
    material = [group for group in material if len(distinct(group).trajectories) > 1]
    details: dict[str, Any] = {"tokens": {name: tokens(bench, g, count) for name, g in counted.items()}}
    details["replies_sorted_by_score"] = rightness(bench, material, _spoilt(1.0, [BadReply.SORTED]))
    details["bad_replies_5_percent"] = rightness(bench, material, _spoilt(BAD_SHARE, list(BadReply)))
    races = {name: speed(bench, groups) for name, groups in timed.items()}
    details["speed"] = {name: found for name, (_, found) in races.items()}
    return next(iter(races.values()))[0], details


def _spoilt(rate: float, kinds: Sequence[BadReply]) -> Planted:
    return Planted(bad_replies=spread(rate, kinds))


def checks(details: dict[str, Any]) -> list[dict[str, Any]]:
    """Every figure that is asked for, with its limit, as far as it was measured."""
    rows = []
    for name, found in details["tokens"].items():
        if "theirs" in found:
            share = found["ours_over_theirs"]["one_call"]
            rows.append(check(f"prompt tokens over theirs at one call, {name}", share, TOKENS_LIMIT))
    for name, found in details["speed"].items():
        for way, times in found.get("times_theirs", {}).items():
            rows.append(check(f"groups a second over theirs, {way}, {name}", times, SPEED_LIMIT, least=True))
        for way in ("one_call", "default"):
            own = found[f"own_time_{way}"]["cpu_ms"]
            rows.append(check(f"own milliseconds a group, {way}, {name}", own, OWN_MS_LIMIT))
    for part in ("replies_sorted_by_score", "bad_replies_5_percent"):
        wrong = max(details[part][side]["wrong"] for side in ("ours_one_call", "ours_default"))
        rows.append(check(f"wrong assignments, {part}", wrong, 0))
    return rows


def outcome(raced: Race, details: dict[str, Any], missing: Sequence[str]) -> Outcome:
    """The object that `--json` prints."""
    return Outcome(
        name="judge",
        ours=raced.default.wall,
        theirs=[] if raced.theirs is None else raced.theirs.wall,
        limit=SPEED_LIMIT,
        details={"missing": list(missing), "checks": checks(details), **details},
    )


def report(found: Outcome) -> str:
    """The checks, a line each, and what is missing."""
    lines = [check_line(row) for row in found.details["checks"]]
    return "\n".join([*lines, *(f"missing {what}" for what in found.details["missing"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--peer-python", default=os.environ.get("STROP_PEER_PYTHON"))
    parser.add_argument("--tokenizer", type=Path, default=None, help="a model's folder")
    options = parser.parse_args()
    missing: list[str] = []
    tau = find_tau(missing)
    python = find_peer(PACKAGE, options.peer_python, environment(), missing)
    count, counted_by = token_counter(options.tokenizer or cached_model())
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        peer = None if python is None else stack.enter_context(Peer(python))
        raced, details = measure(Bench(run=runner.run, peer=peer, tau=tau, pairs=options.pairs), count)
    found = outcome(raced, {"tokens_counted_by": counted_by, **details}, missing)
    print(found.to_json() if options.json else f"{report(found)}\n{found.to_json()}")


if __name__ == "__main__":
    main()
