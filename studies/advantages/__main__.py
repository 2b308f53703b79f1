"""Which advantages learn best from a noisy judge, at equal judge cost: a simulation with known truth.

    python -m studies.advantages [--json] [--runs N]

Rewrites docs/studies/advantages.md and docs/studies/advantages.svg; some minutes.
"""

import argparse
import json
from pathlib import Path

from studies.advantages.figure import figure
from studies.advantages.page import to_json, to_markdown
from studies.advantages.results import RUNS, results

FOLDER = Path(__file__).parents[2] / "docs" / "studies"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs a cell")
    options = parser.parse_args()
    found = results(options.runs)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "advantages.md").write_text(to_markdown(found), encoding="utf-8")
    (FOLDER / "advantages.svg").write_text(figure(found), encoding="utf-8")
    print(json.dumps(to_json(found)) if options.json else "wrote docs/studies/advantages.md and .svg")


if __name__ == "__main__":
    main()
