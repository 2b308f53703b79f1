"""A small seeded run directory with everything the page can show."""

import json
from dataclasses import replace

import numpy as np
import pytest

from strop.audit.curve import curve
from strop.audit.judge import tied_share
from strop.audit.summary import Evidence, audit
from strop.grader.codec import to_json
from strop.grader.grade import Graded, StepGrade
from strop.judge.verdict import Cost, Failure, Verdict, apply
from strop.store.run import Run
from strop.trajectory.model import Group, Trajectory

HOSTILE = (
    'Done </style></script><script>alert("x")</script> <img src="https://evil.example/a.png"> {{ 7 * 7 }}'
)
SYSTEM = (
    "You work at the order desk. Look the order up, then refund it or decline, then tell the customer. "
    "If a lookup fails, try again. If you do not know the order number, ask. A refund cannot be undone."
)


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


def attempt(name, scenario, right, rng, said="Your money is on its way."):
    order = str(1000 + int(scenario[1:]))
    messages = [
        {"role": "system", "content": SYSTEM},
        {
            "role": "user",
            "content": f"Order {order} came with a crack in the lid. I would like my money back.",
        },
    ]
    if rng.random() < 0.3:
        messages += [call("lookup", order=order), {"role": "tool", "content": '{"error": "timed out"}'}]
    messages += [call("lookup", order=order), {"role": "tool", "content": '{"status": "arrived damaged"}'}]
    messages += [
        call("refund" if right else "decline", order=order),
        {"role": "tool", "content": '{"ok": true}'},
    ]
    messages += [
        {"role": "assistant", "content": said if right else "I am afraid that we cannot refund this order."}
    ]
    spoken = sum(m["role"] == "assistant" for m in messages)
    return Trajectory(
        trajectory_id=name,
        scenario_id=scenario,
        group_id=f"g-{scenario}",
        messages=tuple(messages),
        truth=float(right),
        first_wrong_step=None if right else spoken - 2,
    )


def attempts(part, scenarios, share, rng, each=1):
    return [
        attempt(f"{part}-s{s}-{i}", f"s{s}", bool(rng.random() < share), rng)
        for s in range(scenarios)
        for i in range(each)
    ]


def judged(trajectories, rng):
    groups, verdicts = [], []
    for group_id in dict.fromkeys(t.group_id for t in trajectories):
        members = tuple(t for t in trajectories if t.group_id == group_id)
        group = Group(group_id=group_id, scenario_id=members[0].scenario_id, trajectories=members)
        verdict = _verdict(group, rng)
        groups.append(apply(group, verdict))
        verdicts.append(verdict)
    return groups, verdicts


def _verdict(group, rng):
    cost = Cost(tokens_in=900, tokens_out=140, money=0.0004, seconds=1.4, calls=1)
    if rng.random() < 0.05:
        return Verdict(group_id=group.group_id, failure=Failure.NO_JSON, cost=cost)
    scores, said = {}, {}
    for t in group.trajectories:
        right = t.truth if rng.random() < 0.9 else 1 - t.truth
        scores[t.trajectory_id] = float(np.clip(rng.normal(0.8 if right else 0.25, 0.08), 0, 1).round(2))
        said[t.trajectory_id] = (
            "It looked the order up, saw the damage and refunded, as the policy asks."
            if right
            else "It declined although the lookup says that the order arrived damaged."
        )
    return Verdict(group_id=group.group_id, scores=scores, explanations=said, cost=cost)


def graded(t, rng):
    spoken = [i for i, m in enumerate(t.messages) if m["role"] == "assistant"]
    steps = []
    for index, message_index in enumerate(spoken):
        value = float(rng.normal(-2.4 if index == t.first_wrong_step else 0.7, 0.8))
        tokens = int(rng.integers(14, 40))
        logprob = float(-rng.random() * tokens)
        steps.append(
            StepGrade(
                index=index,
                message_index=message_index,
                n_tokens=tokens,
                grade=value,
                mean=value / tokens,
                policy_logprob=logprob,
                reference_logprob=logprob - value,
                entropy=float(rng.random()),
                self_certainty=float(rng.random() * 9),
                deepconf=float(rng.random() * 9),
            )
        )
    return Graded(
        trajectory_id=t.trajectory_id,
        scenario_id=t.scenario_id,
        group_id=t.group_id,
        steps=tuple(steps),
        truth=t.truth,
        first_wrong_step=t.first_wrong_step,
    )


def step_line(step, trajectories):
    n = len(trajectories)
    return {
        "step": step,
        "groups": {"all": 8, "trained": 5, "tied": 2, "singleton": 0, "unscored": 1, "no_tokens": 0},
        "trajectories": {"all": n, "trained": n - 18, "failed": 1, "unscored": 5, "tied": 12},
        "truth": {"mean": float(np.mean([t.truth for t in trajectories])), "n": n},
        "judge_score": {"mean": 0.5, "n": n},
        "seconds": {
            "rollout": 11.2,
            "judge": 4.1,
            "advantages": 0.01,
            "update": 7.5,
            "checkpoint": 0.3,
            "publish": 0.6,
        },
    }


def make_run(folder, scenarios=60, steps=12):
    rng = np.random.default_rng(7)
    run = Run.create(folder, "")
    before, after = attempts("before", scenarios, 0.5, rng), attempts("after", scenarios, 0.88, rng)
    run.write_trajectories("heldout-before", before)
    run.write_trajectories("heldout-after", after)
    compared = attempts("judged", scenarios // 3, 0.6, rng, each=4)
    compared[0] = replace(
        compared[0],
        truth=1.0,
        messages=(*compared[0].messages[:-1], {"role": "assistant", "content": HOSTILE}),
    )
    compared[1] = replace(compared[1], truth=0.0)
    groups, verdicts = judged(compared, rng)
    run.write_trajectories("judged-heldout", [t for g in groups for t in g.trajectories])
    run.write_verdicts("judged-heldout", [v.to_json() for v in verdicts])
    grades = [graded(t, rng) for t in after]
    run.write_grades("heldout-after", [to_json(g) for g in grades])
    by_step = {}
    for step in range(steps):
        trained, verdicts_of_step = judged(attempts(f"t{step}", 8, 0.5 + 0.03 * step, rng, each=6), rng)
        by_step[step] = [t for g in trained for t in g.trajectories]
        run.write_trajectories(f"train-{step:04d}", by_step[step])
        run.write_verdicts(f"train-{step:04d}", [v.to_json() for v in verdicts_of_step])
        run.append_step(step_line(step, by_step[step]))
    evidence = Evidence(before=before, after=after, judged=groups, verdicts=verdicts, graded=grades)
    run.write_summary(
        {
            **audit(evidence, rng),
            "curve": curve(by_step, rng),
            "tied_share": tied_share(groups).to_json(),
            "steps": steps,
            "seconds": {
                "model": 18.0,
                "warm_start": 2.5,
                "rollout": 134.0,
                "judge": 49.0,
                "update": 90.0,
                "grade": 31.0,
            },
            "peak_rss_mb": 1830.4,
        }
    )
    return run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "demo-0", scenarios=24, steps=5)


@pytest.fixture
def hostile_text():
    return HOSTILE
