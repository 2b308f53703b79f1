"""Which advantages learn best from a noisy judge, at equal judge cost: a simulation with known truth.

    python -m studies.advantages [--json] [--runs N]

Rewrites docs/studies/advantages.md and docs/studies/advantages.svg; some minutes.
"""

from studies.advantages.figure import figure
from studies.advantages.page import to_json, to_markdown
from studies.advantages.results import RUNS, results
from studies.publishing import publish, study_parser


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs a cell")
    options = parser.parse_args()
    found = results(options.runs)
    files = {"advantages.md": to_markdown(found), "advantages.svg": figure(found)}
    publish(files, to_json(found), as_json=options.json)


if __name__ == "__main__":
    main()
