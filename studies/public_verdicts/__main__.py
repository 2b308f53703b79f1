"""Published verdicts of LLMBar and AgentProcessBench through strop's statistics, beside their nulls.

    python -m studies.public_verdicts [--json]

Rewrites docs/studies/public-verdicts.md. The data are looked for in the folder that STROP_DATA names.
"""

import sys

from strop.errors import InputError
from strop.stats.intervals import RESAMPLES
from studies.public_verdicts import agentprocessbench, llmbar
from studies.public_verdicts.page import Results, to_json, to_markdown
from studies.public_verdicts.sources import data_folder
from studies.publishing import publish, study_parser


def results(resamples: int = RESAMPLES) -> Results:
    """The whole study. Raises InputError where the data are missing."""
    pairs, runs = data_folder("llmbar"), data_folder("agentprocessbench")
    rows = list(llmbar.rows(pairs, resamples))
    stated = [(row, llmbar.stated(pairs, row)) for row in rows]
    published = [(row, theirs) for row, theirs in stated if theirs is not None]
    return Results(
        rows=rows,
        nulls=list(llmbar.nulls(pairs, resamples)),
        statistics=(
            sum(llmbar.same_figures(llmbar.made_alike(row), theirs) for row, theirs in published),
            len(published),
        ),
        figures=agentprocessbench.figures(runs, resamples),
        audits=agentprocessbench.audits(runs),
    )


def main() -> int:
    options = study_parser(__doc__).parse_args()
    try:
        found = results()
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    publish({"public-verdicts.md": to_markdown(found)}, to_json(found), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
