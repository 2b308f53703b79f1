"""Orders of presentation under a planted position effect: what more calls buy, and what reliability tells.

    python -m studies.judge_orders [--json] [--groups N]

Rewrites docs/studies/judge-orders.md and docs/studies/judge-orders.svg; some minutes.
"""

from studies.judge_orders.figure import figure
from studies.judge_orders.page import to_json, to_markdown
from studies.judge_orders.results import results
from studies.publishing import publish, study_parser

GROUPS = 1000


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--groups", type=int, default=GROUPS, help="groups a setting")
    options = parser.parse_args()
    found = results(options.groups)
    files = {"judge-orders.md": to_markdown(found), "judge-orders.svg": figure(found)}
    publish(files, to_json(found), as_json=options.json)


if __name__ == "__main__":
    main()
