"""GET /debug/requests/{id}/why: what the scheduler did with a request, in words."""

from __future__ import annotations

from typing import Any

from pagoda.core.errors import EngineError
from pagoda.engine.questions import Stories, WhyQuestion
from pagoda.scheduler.words import Story, sentence
from pagoda.server.errors import ApiError, internal_error
from pagoda.server.exchange import Exchange
from pagoda.server.service import Service


async def why(exchange: Exchange, service: Service) -> None:
    """`id` is the answer's own, the x-request-id that the call had, or that of one prompt of it."""
    request_id = exchange.path_parameter("id")
    question = WhyQuestion(service.calls.name_of(request_id))
    try:
        content = await exchange.while_listening(service.engine.ask(question))
    except EngineError:
        message = "the engine is not there to be asked; try again"
        raise ApiError(503, "server_error", message, code="engine_stopped", retry_after=1) from None
    if not isinstance(content, Stories):
        raise internal_error()
    if not content.stories:
        message = f"the scheduler knows nothing of request {request_id[:100]!r}; it forgets after a while"
        raise ApiError(404, "not_found_error", message, param="id", code="request_not_found")
    await exchange.json({"id": request_id, "requests": [story_told(story) for story in content.stories]})


def story_told(story: Story) -> dict[str, Any]:
    return {
        "id": story.request_id,
        "decisions": [
            {
                "step": decision.step_id,
                "seconds": story.times.get(decision.step_id),
                "sample": decision.sample_index,
                "reason": decision.reason.name.lower(),
                "why": sentence(decision),
            }
            for decision in story.decisions
        ],
    }
