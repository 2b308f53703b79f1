"""Published verdicts of LLMBar and AgentProcessBench through strop's statistics, beside their nulls.

    python -m studies.public_verdicts [--json]

Rewrites docs/studies/public-verdicts.md. The data are looked for in the folder that STROP_DATA names.
"""

import argparse
import json
import sys
from pathlib import Path

from strop.errors import InputError
from strop.stats.intervals import RESAMPLES
from studies.public_verdicts import agentprocessbench, llmbar
from studies.public_verdicts.page import Results, to_json, to_markdown
from studies.public_verdicts.sources import ROOT, data_folder

PAGE = Path("docs/studies/public-verdicts.md")


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        found = results()
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    page = ROOT / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(to_markdown(found), encoding="utf-8")
    print(json.dumps(to_json(found)) if options.json else f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
