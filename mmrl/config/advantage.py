"""Config of where advantages come from, where not from the algorithm's own estimator."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from mmrl.config.base import ConfigModel, PathText
from mmrl.config.unread import UnreadError


class AdvantageSource(ConfigModel):
    """Nothing for the algorithm's own advantages; `type` for those of another algorithm; `path` for a function."""

    type: str | None = None
    """The algorithm whose advantages are taken, such as rloo; null is the algorithm itself."""
    path: PathText | None = None
    """The Python file (or a module's dotted name) that holds a function of your own."""
    name: str = "advantages"
    """The function in that file."""
    arguments: dict[str, Any] = {}
    """Of a function: fixed keyword arguments. Of an algorithm: settings of its own, such as those of its estimator."""

    @model_validator(mode="after")
    def _one_source(self) -> AdvantageSource:
        if self.type is not None and self.path is not None:
            raise ValueError(
                f"type '{self.type}' and path '{self.path}' name two sources of advantages; leave one of them out"
            )
        if self.path is None and "name" in self.changed:
            raise UnreadError(
                f"name '{self.name}' is a function, so it needs the path of the Python file that holds it", "name"
            )
        if self.arguments and self.type is None and self.path is None:
            raise ValueError("arguments are of another algorithm or of a function; give type or path too")
        return self


def _word_is_a_type(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


AdvantageField = Annotated[AdvantageSource, BeforeValidator(_word_is_a_type)]
"""A map, or a bare word for its `type`."""
