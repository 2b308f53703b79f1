"""Orders of presentation under a planted position effect: what more calls buy, and what reliability tells.

    python -m studies.judge_orders [--json] [--groups N]

Rewrites docs/studies/judge-orders.md and docs/studies/judge-orders.svg; some minutes.
"""

import argparse
import json
from pathlib import Path

from studies.judge_orders.figure import figure
from studies.judge_orders.page import to_json, to_markdown
from studies.judge_orders.results import results

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
GROUPS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--groups", type=int, default=GROUPS, help="groups a setting")
    options = parser.parse_args()
    found = results(options.groups)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "judge-orders.md").write_text(to_markdown(found), encoding="utf-8")
    (FOLDER / "judge-orders.svg").write_text(figure(found), encoding="utf-8")
    print(json.dumps(to_json(found)) if options.json else "wrote docs/studies/judge-orders.md and .svg")


if __name__ == "__main__":
    main()
