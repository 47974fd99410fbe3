"""The reward `remote` against a real HTTP server with faults."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from scripted_server import Answer, Request, serving

from mmrl.config.reward import RemoteRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ConfigError, RunFailedError
from mmrl.rewards import RewardItem, RewardRunner
from mmrl.rewards.model.remote import RemoteReward, _read
from mmrl.types import ImagePart, Message, RewardResult, Rollout, RolloutGroup, Sample, TextPart

KEY = "not-a-real-key-0123456789"
TEXTS = ["aaaa", "", "cc", "d", "eeeee"]


def lengths(number: int, request: Request) -> Answer:
    return Answer({"scores": [len(response["response"]) for response in request.body["responses"]]})


def sample(**meta: Any) -> Sample:
    return Sample("s", (Message("user", (TextPart("How long?"),)),), "4", meta)


def config(url: str, **settings: Any) -> RemoteRewardConfig:
    quick = {"backoff_s": 0.01, "max_backoff_s": 0.02, "timeout_s": 9.0, "try_timeout_s": 4.0}
    return RemoteRewardConfig(url=url, **quick | settings)


def score(config: RemoteRewardConfig, texts: Sequence[str] = TEXTS) -> list[RewardResult]:
    with RewardRunner([config], RewardRunnerConfig()) as runner:
        return runner.score_texts([(sample(), text) for text in texts])


def errors(results: Sequence[RewardResult]) -> list[str]:
    return [result.parts[0].error or "" for result in results]


def test_responses_are_posted_in_batches_and_scores_come_back_in_order() -> None:
    with serving(lengths) as server:
        results = score(config(server.url + "/score", batch=2))
    assert [result.total for result in results] == [4.0, 0.0, 2.0, 1.0, 5.0]
    assert sorted(len(request.body["responses"]) for request in server.requests) == [1, 2, 2]
    assert {request.path for request in server.requests} == {"/score"}
    assert server.requests[0].body["version"] == 1
    first = next(one for request in server.requests for one in request.body["responses"] if one["response"] == "aaaa")
    assert first == {
        "sample_id": "s",
        "index": 0,
        "prompt": [{"role": "user", "text": "How long?"}],
        "response": "aaaa",
        "answer": "4",
        "meta": {},
        "images": [],
        "num_tokens": 1,
        "finish_reason": "stop",
    }


def test_images_are_sent_where_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    image = ImageStore().add(Image.new("RGB", (30, 20), "red"))
    row = Sample("s", (Message("user", (ImagePart(image), TextPart("What?"))),), "4")
    for images in (False, True):
        with serving(lengths) as server, RewardRunner([config(server.url, images=images)], RewardRunnerConfig()) as run:
            run.score_texts([(row, "x")])
        (sent,) = server.requests[0].body["responses"][0]["images"]
        assert (sent["sha256"], sent["width"], sent["height"]) == (image.sha256, 30, 20)
        assert sent.get("data", "").startswith("data:image/png;base64,") is images


def test_a_score_may_be_a_dict_null_or_an_error_of_one_response() -> None:
    scores = [{"score": 0.5, "explanation": "half", "clarity": 3}, None, {"error": "too long"}, True, "1.0"]
    with serving(lambda number, request: Answer({"scores": scores})) as server:
        results = score(config(server.url))
    assert [result.parts[0].value for result in results] == [0.5, None, None, 1.0, None]
    assert results[0].parts[0].extras == {"clarity": 3.0}
    assert "the service could not score it: too long" in errors(results)[2]
    assert errors(results)[1] == ""
    assert "it returned '1.0' (str)" in errors(results)[4]


@pytest.mark.parametrize("count", [4, 6])
def test_r24_a_wrong_number_of_scores_fails_with_both_numbers(count: int) -> None:
    with serving(lambda number, request: Answer({"scores": [1.0] * count})) as server:
        results = score(config(server.url))
    assert all(f"the service sent {count} scores for 5 responses" in error for error in errors(results))


def test_a_score_that_is_not_finite_is_a_failure_of_its_response_only() -> None:
    with serving(lambda number, request: Answer(b'{"scores": [NaN, 1, Infinity, 1, 1]}')) as server:
        results = score(config(server.url))
    assert [result.total for result in results] == [None, 1.0, None, 1.0, 1.0]


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (Answer({"error": "slow down"}, 429), 'status 429: {"error": "slow down"}'),
        (Answer({}, 500), "status 500: {}"),
        (Answer({}, 503), "status 503"),
        (Answer(drop=True), "the connection failed (RemoteProtocolError"),
        (Answer(b"<html>gateway</html>"), "its answer is no JSON: <html>gateway</html>"),
        (Answer(b"\x00\xff{"), "its answer is no JSON"),
        (Answer(b"[" * 100_000), "its answer is no JSON: [[["),
        (Answer(b"no gzip at all", headers={"Content-Encoding": "gzip"}), "the connection failed (DecodingError"),
        (Answer({}, slow_s=1.4), "no answer within 0.8 s"),
    ],
)
def test_a_fault_that_passes_is_tried_again_and_one_that_stays_fails(fault: Answer, shown: str) -> None:
    def passing(number: int, request: Request) -> Answer:
        return fault if number < 2 else lengths(number, request)

    patience = {"try_timeout_s": 0.8} if fault.slow_s else {}
    with serving(passing) as server:
        results = score(config(server.url, **patience))
    assert [result.total for result in results] == [4.0, 0.0, 2.0, 1.0, 5.0]
    assert len(server.requests) == 3
    with serving(lambda number, request: fault) as server:
        results = score(config(server.url, retries=1, **patience))
    assert len(server.requests) == 2
    assert all("failed after 2 tries: " + shown in error for error in errors(results)), errors(results)[0]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_a_refusal_is_not_tried_again(status: int) -> None:
    with serving(lambda number, request: Answer({"detail": "no"}, status, {"Location": "/else"})) as server:
        results = score(config(server.url))
    assert len(server.requests) == 1
    assert all(f'answered with status {status}: {{"detail": "no"}}' in error for error in errors(results))


def test_a_server_that_nobody_runs_costs_its_tries_only() -> None:
    with serving(lengths) as server:
        url = server.url
    assert all("the connection failed (ConnectError" in error for error in errors(score(config(url, retries=2))))


def test_retry_after_holds_every_request_back() -> None:
    def busy(number: int, request: Request) -> Answer:
        return Answer({}, 429, {"Retry-After": "1"}) if number == 0 else lengths(number, request)

    with serving(busy) as server:
        results = score(config(server.url, batch=1, concurrency=1))
    assert [result.total for result in results] == [4.0, 0.0, 2.0, 1.0, 5.0]
    assert all(request.at - server.requests[0].at >= 0.99 for request in server.requests[1:])


def test_a_server_that_asks_for_more_patience_than_there_is_fails_at_once() -> None:
    with serving(lambda number, request: Answer({}, 429, {"Retry-After": "3600"})) as server:
        began = time.monotonic()
        results = score(config(server.url))
    assert time.monotonic() - began < 2
    assert "it asks to wait 3600 s, over timeout_s 9 (status 429" in errors(results)[0]


def test_a_server_that_never_answers_costs_its_deadline_and_says_what_went_before() -> None:
    def script(number: int, request: Request) -> Answer:
        return Answer({}, 500) if number == 0 else Answer({}, slow_s=3)

    with serving(script) as server:
        began = time.monotonic()
        results = score(config(server.url, timeout_s=0.4, try_timeout_s=5.0))
        assert time.monotonic() - began < 2
    assert "gave no answer within 0.4 s (timeout_s); its last fault: status 500" in errors(results)[0]


def test_a_reply_without_end_is_not_read_to_its_end() -> None:
    with serving(lambda number, request: Answer(b"1" * 3_000_000)) as server:
        results = score(config(server.url, max_reply_mb=1))
    assert "sent more than 1 MiB (max_reply_mb)" in errors(results)[0]


def test_no_more_requests_than_allowed_run_at_once() -> None:
    def slow(number: int, request: Request) -> Answer:
        return Answer(lengths(number, request).body, slow_s=0.03)

    with serving(slow) as server:
        results = score(config(server.url, batch=1, concurrency=3), ["x"] * 12)
    assert [result.total for result in results] == [1.0] * 12
    assert server.most_at_once == 3


def test_requests_begin_as_far_apart_as_the_rate_says() -> None:
    began = time.monotonic()
    with serving(lengths) as server:
        score(config(server.url, batch=1, requests_per_minute=1200), ["x"] * 5)
    assert max(request.at for request in server.requests) - began >= 4 * 0.05


def test_some_failures_cost_their_responses_and_too_many_stop_the_run() -> None:
    def every_third(number: int, request: Request) -> Answer:
        return Answer({}, 400) if request.body["responses"][0]["index"] % 3 == 0 else lengths(number, request)

    rollouts = tuple(Rollout("s", index, (1,), (1,), (0.0,), "stop", "xy", 0, 0) for index in range(6))
    with serving(every_third) as server:
        one_each = config(server.url, batch=1)
        with RewardRunner([one_each], RewardRunnerConfig(max_failure_rate=0.5)) as runner:
            (results,) = runner.score([RolloutGroup(sample(), rollouts)])
        assert [result.total for result in results] == [None, 2.0, 2.0, None, 2.0, 2.0]
        with (
            RewardRunner([one_each], RewardRunnerConfig(max_failure_rate=0.2)) as runner,
            pytest.raises(RunFailedError, match=r"reward 'remote' failed on 2 of 6 responses"),
        ):
            runner.score([RolloutGroup(sample(), rollouts)])


def test_x07_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_KEY", KEY)

    def repeats_the_key(number: int, request: Request) -> Answer:
        return Answer({"detail": f"bad key {request.headers['Authorization']}"}, 401)

    with serving(repeats_the_key) as server:
        results = score(config(server.url, api_key="env:REWARD_KEY"))
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert "bad key Bearer <redacted>" in errors(results)[0]
    assert KEY not in str(results)


def test_a_key_whose_variable_is_not_set_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWARD_KEY", raising=False)
    with pytest.raises(ConfigError, match="the environment variable REWARD_KEY, which is not set"):
        RewardRunner([config("http://127.0.0.1:9", api_key="env:REWARD_KEY")], RewardRunnerConfig())


def test_closing_ends_requests_that_still_run_and_it_works_again_afterwards() -> None:
    def answers(number: int, request: Request) -> Answer:
        return Answer({}, slow_s=2) if number == 0 else lengths(number, request)

    with serving(answers) as server:
        reward = RemoteReward(config(server.url, batch=1))
        (future,) = reward.submit([item("abc")])
        while not server.requests:
            time.sleep(0.01)
        reward.close()
        assert future.cancelled()
        assert reward.score(item("abc")).value == 3.0
        reward.close()


def item(text: str) -> RewardItem:
    return RewardItem(sample(), text)


def test_control_characters_in_an_error_of_the_service_are_escaped() -> None:
    failure = _read({"error": "bad\x00 \x1b[31m thing\n"})
    assert str(failure) == r"the service could not score it: bad\x00 \x1b[31m thing\n"
