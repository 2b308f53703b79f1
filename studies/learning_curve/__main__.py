"""Does strop's loop learn as TRL's does? The same tiny model, seeds, data and loss, side by side.

    python -m studies.learning_curve --peer-python TRL/bin/python [--json] [--seeds N]

Rewrites docs/studies/learning-curve.md and docs/studies/learning-curve.svg; some minutes. The peer's Python
is one of an environment with trl, or STROP_TRL_PYTHON names it.
"""

import os

from studies.learning_curve.page import figure, to_json, to_markdown
from studies.learning_curve.results import SEEDS, results
from studies.publishing import publish, study_parser


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument(
        "--peer-python", default=os.environ.get("STROP_TRL_PYTHON"), help="of an env with trl"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds a curve, at least 2")
    options = parser.parse_args()
    if not options.peer_python:
        parser.error("name the peer's Python: --peer-python or STROP_TRL_PYTHON")
    found = results(options.peer_python, options.seeds)
    files = {"learning-curve.md": to_markdown(found), "learning-curve.svg": figure(found)}
    publish(files, to_json(found), as_json=options.json)


if __name__ == "__main__":
    main()
