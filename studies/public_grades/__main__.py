"""Step grades on public logs: AgentProcessBench, Who&When, tau-bench, through the verbs that use grades.

    python -m studies.public_grades [--policy P] [--reference R] [--model M] [--share X] [--max-length N]
        [--reward-model MODEL ...] [--work DIR] [--json]

By default a smoke of the pipeline with the embedded model: the policy of runs/demo-0 (`make demo`) against
the warm start, on a small share of each log. Rewrites docs/studies/public-grades.md. The data are looked for
in the folder that STROP_DATA names; a log that is not there is an error. What is graded waits in --work:
stopped, the same command goes on.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from strop.app.rewarding import RewardAsked
from strop.errors import InputError, StropError
from studies.order_desk.policies import last_adapter
from studies.public_grades.found import Setting, log_found
from studies.public_grades.logs import LOGS
from studies.public_grades.page import to_json, to_markdown
from studies.publishing import ROOT, publish, study_parser

WARM = ROOT / "src" / "strop" / "demo" / "adapters" / "warmstart"
DEMO = ROOT / "runs" / "demo-0"
SHARE = 0.1


def main() -> int:
    options = _options()
    try:
        setting = _setting(options)
        options.work.mkdir(parents=True, exist_ok=True)
        found = [log_found(log, setting, options.work, _told) for log in LOGS]
    except StropError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    page = to_markdown(setting, found, embedded=setting.model == "smollm2")
    publish({"public-grades.md": page}, to_json(setting, found), as_json=options.json)
    return 0


def _setting(options: argparse.Namespace) -> Setting:
    """Raises InputError where the policy is a run without a checkpoint, or there is none."""
    if not 0 < options.share <= 1:
        raise InputError(f"--share {options.share:g}: give a share above 0, at most 1")
    run = options.policy is None or (Path(options.policy) / "run.toml").is_file()
    policy = str(last_adapter(Path(options.policy or DEMO))) if run else options.policy
    return Setting(
        policy=policy,
        reference=options.reference,
        model=options.model,
        share=options.share,
        max_length=options.max_length,
        rewards=tuple(RewardAsked(model=name) for name in options.reward_model),
    )


def _told(stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:  # noqa: ARG001
    print(f"{stage} {done}/{total}", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = study_parser(__doc__)
    parser.add_argument("--policy", help="an adapter, a model, or a run folder; default: the demo's run")
    parser.add_argument("--reference", default=str(WARM), help="an adapter, a model, or base")
    parser.add_argument("--model", default="smollm2", help="what adapters are worn by")
    parser.add_argument("--share", type=float, default=SHARE, help="of each log's scenarios, at random")
    parser.add_argument("--max-length", type=int, default=2048, help="tokens shown at once")
    parser.add_argument("--reward-model", action="append", default=[], help="a baseline; repeatable")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "strop-public-grades")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
