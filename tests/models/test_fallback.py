"""Lists of models."""

import pytest

from entracte_server.models import FallbackModel, ModelError, scripted
from tests.models.support import HI, Answer, FakeProvider, ask, choice, model_of, sse, text

DOWN = scripted([[{"throw": "down"}]], name="test/down")
BREAKS = [[{"text": "Par"}, {"error": "gone"}]]


async def test_the_next_is_asked() -> None:
    first, last = scripted([[{"throw": "1"}]], name="test/1"), scripted([[{"text": "Hi"}]], name="test/2")
    model = FallbackModel([first, DOWN, last])
    assert (await ask(model)).text == "Hi"
    assert (first.calls, last.calls) == (1, 1)
    assert model.name == "test/1"
    assert model.request_body(HI) == first.request_body(HI)


async def test_the_first_is_enough() -> None:
    first, second = scripted([[{"text": "Hi"}]]), scripted([[{"text": "no"}]])
    assert (await ask(FallbackModel([first, second]))).text == "Hi"
    assert second.calls == 0


async def test_the_last_error_is_the_error() -> None:
    outcome = await ask(FallbackModel([DOWN, scripted([[{"throw": "last"}]])]))
    assert outcome.error is not None
    assert outcome.error.message == "last"


async def test_an_answer_once_begun_is_not_mixed_with_another() -> None:
    second, third = scripted([[{"text": "two"}]]), scripted([[{"text": "three"}]])
    for rest in ([second], [second, third], [FallbackModel([second, third])]):
        with pytest.raises(ModelError) as caught:
            async for _ in FallbackModel([scripted(BREAKS), *rest]).stream(HI):
                pass
        assert caught.value.resume_with is not None
        assert (await ask(caught.value.resume_with)).text == "two"
    with pytest.raises(ModelError) as caught:
        async for _ in FallbackModel([DOWN, scripted(BREAKS)]).stream(HI):
            pass
    assert caught.value.resume_with is None


async def test_retries_come_before_the_next(provider: FakeProvider) -> None:
    provider.say(Answer([b"{}"], status=500, headers={"retry-after-ms": "1"}))
    async with FakeProvider() as other:
        other.say(Answer([sse([*text("Hi"), choice({}, "stop")])]))
        async with model_of(provider, max_retries=2) as first, model_of(other) as second:
            assert (await ask(FallbackModel([first, second]))).text == "Hi"
    assert (len(provider.requests), len(other.requests)) == (3, 1)


def test_a_list_is_not_empty() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FallbackModel([])
