"""The composition root: whole runs from a config. Builds engine, judge, agent and store; holds no maths."""

from strop.app.grading import GradeJob, grade_file
from strop.app.judge_file import JudgeJob, judge_file, show_prompts
from strop.app.judge_replay import replay_file
from strop.app.offline import report
from strop.app.rewarding import RewardAsked
from strop.app.serving import serve
from strop.app.uses import Asked, attribute_failures, predict_success, select_best
from strop.app.warmstart import WarmstartJob, warmstart
from strop.app.whole_run import DemoOptions, demo, train

__all__ = [
    "Asked",
    "DemoOptions",
    "GradeJob",
    "JudgeJob",
    "RewardAsked",
    "WarmstartJob",
    "attribute_failures",
    "demo",
    "grade_file",
    "judge_file",
    "predict_success",
    "replay_file",
    "report",
    "select_best",
    "serve",
    "show_prompts",
    "train",
    "warmstart",
]
