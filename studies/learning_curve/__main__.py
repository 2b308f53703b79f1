"""Does strop's loop learn as TRL's does? The same tiny model, seeds, data and loss, side by side.

    python -m studies.learning_curve --peer-python TRL/bin/python [--json] [--seeds N]

Rewrites docs/studies/learning-curve.md and docs/studies/learning-curve.svg; some minutes. The peer's Python
is one of an environment with trl, or STROP_TRL_PYTHON names it.
"""

import argparse
import json
import os
from pathlib import Path

from studies.learning_curve.page import figure, to_json, to_markdown
from studies.learning_curve.results import SEEDS, results

FOLDER = Path(__file__).parents[2] / "docs" / "studies"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--peer-python", default=os.environ.get("STROP_TRL_PYTHON"), help="of an env with trl"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds a curve, at least 2")
    options = parser.parse_args()
    if not options.peer_python:
        parser.error("name the peer's Python: --peer-python or STROP_TRL_PYTHON")
    found = results(options.peer_python, options.seeds)
    (FOLDER / "learning-curve.md").write_text(to_markdown(found), encoding="utf-8")
    (FOLDER / "learning-curve.svg").write_text(figure(found), encoding="utf-8")
    print(json.dumps(to_json(found)) if options.json else "wrote docs/studies/learning-curve.md and .svg")


if __name__ == "__main__":
    main()
