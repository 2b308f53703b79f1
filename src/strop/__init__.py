"""strop sharpens LLM agents without a reward function, and says how far its graders may be believed."""

__version__ = "0.1.0"
