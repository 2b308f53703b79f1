"""What the step grade is worth at the order desk: foresee, choose, name the wrong step, beside all baselines.

    python -m studies.order_desk [--json] [--work DIR] [--runs DIR ...] [--seeds N] [--kl-seeds N]
        [--scenarios N] [--attempts N] [--own N] [--valued N] [--completions N]

Trains the demo's policy for each seed, unless --runs gives run folders of the same seeds, rolls out held-out
orders, grades and judges them, and rewrites docs/studies/order-desk.md and its figure; hours on two cores.
What is finished waits in --work: a study that was stopped goes on.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from strop.engines.opening import prepare
from studies.order_desk.figure import figure
from studies.order_desk.page import to_json, to_markdown
from studies.order_desk.results import Job, results
from studies.order_desk.setting import Setting

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
SIZES = ("scenarios", "attempts", "own", "seeds", "kl_seeds", "valued", "completions")


def main() -> None:
    options = _options()
    prepare()
    setting = Setting(**{name: getattr(options, name) for name in SIZES})
    job = Job(setting=setting, work=options.work, given=options.runs, progress=_told)
    found = results(job)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "order-desk.md").write_text(to_markdown(found), encoding="utf-8")
    (options.out / "order-desk.svg").write_text(figure(found), encoding="utf-8")
    print(json.dumps(to_json(found)) if options.json else f"wrote {options.out / 'order-desk.md'} and .svg")


def _told(stage: str, done: int = 0, total: int = 0, step: int = 0, steps: int = 0) -> None:  # noqa: ARG001
    print(stage, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "strop-order-desk")
    parser.add_argument(
        "--runs", type=Path, nargs="*", default=[], help="run folders that are trained already"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="where page and figure go")
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Setting(), name))
    return parser.parse_args()


if __name__ == "__main__":
    main()
