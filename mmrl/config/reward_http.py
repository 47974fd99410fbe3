"""Config of the rewards that are asked for over HTTP: a judge, and any other service."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from mmrl.config.base import PathText
from mmrl.config.reward_base import RewardBase
from mmrl.config.secrets import is_reference


class HttpRewardConfig(RewardBase):
    """How a service is asked, and what is done when it fails."""

    url: str
    """Address of the service, with http:// or https:// and without a key in it."""
    api_key: str | None = None
    """The key as `env:NAME`, the environment variable that holds it, or `file:PATH`, the file that does; sent as
    `Authorization: Bearer`."""
    timeout_s: float = Field(120.0, gt=0)
    """Seconds for one request with all its tries, not counting the wait for its turn; then it counts as failed."""
    try_timeout_s: float = Field(60.0, gt=0)
    """Seconds for a single try."""
    retries: int = Field(5, ge=0)
    """Further tries after status 408, 425, 429 or 5xx, a lost connection, a slow try, or an answer that is no JSON."""
    backoff_s: float = Field(1.0, gt=0)
    """Wait before the first further try, doubled for each one after it; never less than the server's Retry-After."""
    max_backoff_s: float = Field(30.0, gt=0)
    """Longest wait between two tries, unless the server asks for more."""
    concurrency: int = Field(16, ge=1)
    """Requests at once."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Most requests begun a minute, evenly spaced; unlimited if not given."""
    max_reply_mb: float = Field(8.0, gt=0)
    """Longest reply that is read, in MiB; a longer one is a failure."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an address such as http://127.0.0.1:8000/v1 (got {url!r})")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the address holds a user or a password; give the key as `api_key: env:NAME` instead")
        return url.rstrip("/")

    @field_validator("api_key")
    @classmethod
    def _is_reference(cls, api_key: str | None) -> str | None:
        if api_key is not None and not is_reference(api_key):
            raise ValueError(
                "a key is not written into a config; put it into an environment variable and write `env:NAME`, "
                "or into a file and write `file:PATH`"
            )
        return api_key


class RemoteRewardConfig(HttpRewardConfig):
    """What a service of yours says: responses are posted to it as JSON, scores come back."""

    type: Literal["remote"] = "remote"
    """Which reward function this is."""
    batch: int = Field(16, ge=1)
    """Most responses in one request."""
    images: bool = False
    """Send the images themselves, as data URIs; otherwise their SHA-256 and size only."""


class JudgeRewardConfig(HttpRewardConfig):
    """What a language or vision-language model makes of a response, asked through an OpenAI-compatible address; its
    grade, moved to 0..1."""

    type: Literal["judge"] = "judge"
    """Which reward function this is."""
    url: str = "http://127.0.0.1:8000/v1"
    """Base address of the server; `/chat/completions` is appended."""
    model: str = Field(..., min_length=1)
    """The model's name at that server."""
    rubric: str = (
        "Grade whether the response answers the task correctly. Where a reference answer is given, it is right: a "
        "response whose final answer differs from it in meaning is wrong, however well it is argued."
    )
    """What the judge is to look at."""
    scale: tuple[float, float] = (0.0, 10.0)
    """Lowest and highest grade; grades are moved to 0..1 by it."""
    images: bool = True
    """Show the judge the sample's images; it must be a vision-language model then."""
    reference: bool = True
    """Show the judge the sample's reference answer, if it has one."""
    reply: Literal["line", "json"] = "line"
    """How the grade comes: in a last line that is marked with a random code, or in the field `score` of JSON that the
    server enforces (response_format json_schema)."""
    explain: bool = True
    """Let the judge give its reasons before the grade."""
    temperature: float = Field(0.0, ge=0)
    """Sampling temperature of the judge."""
    max_tokens: int = Field(1024, ge=1)
    """Longest reply of the judge, its reasoning included."""
    extra: dict[str, Any] = {}
    """Further fields of the request, such as chat_template_kwargs; null leaves a field of ours out."""
    max_response_chars: int = Field(20_000, ge=1)
    """Of a longer response the judge sees the beginning and the end."""
    cache: bool = True
    """Keep grades on disk by what was asked, and never ask the same twice."""
    cache_dir: PathText | None = None
    """Where they are kept; `cache/judge` in mmrl's home if not given."""
    prompt_price: float = Field(0.0, ge=0)
    """Price of a million prompt tokens."""
    completion_price: float = Field(0.0, ge=0)
    """Price of a million tokens of the judge's replies."""
    max_cost: float | None = Field(None, gt=0)
    """Once this much was spent in a run (since it was started or resumed), nothing more is asked."""

    @model_validator(mode="after")
    def _can_be_graded(self) -> JudgeRewardConfig:
        lowest, highest = self.scale
        if lowest >= highest:
            raise ValueError(f"scale: the lowest grade must be below the highest (got {lowest:g} and {highest:g})")
        if self.max_cost is not None and not (self.prompt_price or self.completion_price):
            raise ValueError("max_cost: costs are not known without prompt_price and completion_price; set them")
        return self
