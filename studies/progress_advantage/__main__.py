"""The theory of the step grade, checked in worlds that are solved exactly.

    python -m studies.progress_advantage [--json] [--worlds N]

Rewrites docs/studies/progress-advantage.md and its two figures; some minutes.
"""

from studies.progress_advantage.figure import sweeps_figure, uses_figure
from studies.progress_advantage.page import to_json, to_markdown
from studies.progress_advantage.results import results
from studies.publishing import publish, study_parser

WORLDS = 300


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--worlds", type=int, default=WORLDS, help="worlds a setting")
    options = parser.parse_args()
    found = results(options.worlds)
    files = {
        "progress-advantage.md": to_markdown(found),
        "progress-advantage.svg": sweeps_figure(found),
        "progress-advantage-uses.svg": uses_figure(found.uses[0]),
    }
    publish(files, to_json(found), as_json=options.json)


if __name__ == "__main__":
    main()
