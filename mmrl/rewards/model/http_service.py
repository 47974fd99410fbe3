"""What rewards that are asked for over HTTP share: their client, and the event loop that it lives in."""

from __future__ import annotations

from mmrl.config.reward_http import HttpRewardConfig
from mmrl.rewards.model.event_loop import LoopThread
from mmrl.rewards.model.http_client import HttpClient
from mmrl.rewards.model.service import Service

CLOSE_TIMEOUT_S = 5.0


class HttpService(Service):
    """Raises ConfigError where the environment variable of the key is not set."""

    def __init__(self, config: HttpRewardConfig, *, path: str = "") -> None:
        self.client = HttpClient(config, path=path)
        self.loop = LoopThread(f"reward-{config.part_name}")

    def close(self) -> None:
        """Cancel what is being asked, and end connections and thread."""
        if self.loop.is_running:
            self.loop.cancel_all()
            self.loop.submit(self.client.close()).result(CLOSE_TIMEOUT_S)
            self.loop.close()
