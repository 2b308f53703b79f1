"""The theory of the step grade, checked in worlds that are solved exactly.

    python -m studies.progress_advantage [--json] [--worlds N]

Rewrites docs/studies/progress-advantage.md and its two figures; some minutes.
"""

import argparse
import json
from pathlib import Path

from studies.progress_advantage.figure import sweeps_figure, uses_figure
from studies.progress_advantage.page import to_json, to_markdown
from studies.progress_advantage.results import results

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
WORLDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--worlds", type=int, default=WORLDS, help="worlds a setting")
    options = parser.parse_args()
    found = results(options.worlds)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "progress-advantage.md").write_text(to_markdown(found), encoding="utf-8")
    (FOLDER / "progress-advantage.svg").write_text(sweeps_figure(found), encoding="utf-8")
    (FOLDER / "progress-advantage-uses.svg").write_text(uses_figure(found.uses[0]), encoding="utf-8")
    print(json.dumps(to_json(found)) if options.json else "wrote docs/studies/progress-advantage.md and .svg")


if __name__ == "__main__":
    main()
