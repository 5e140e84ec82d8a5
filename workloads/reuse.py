"""A fitted description of what prompts of one stream of requests share with earlier ones."""

from pydantic import BaseModel


class PromptReuse(BaseModel, frozen=True, extra="forbid"):
    """How much of a prompt repeats an earlier one, and how far back that one lies."""

    block_size: int
