"""Records between processes: what goes in comes out, in whatever pieces it arrives, and damage is refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pagoda.core.errors import CapacityError, EngineError, InvalidRequest, PagodaError
from pagoda.core.request import Request
from pagoda.core.result import TokenLogprob
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.messages import (
    Aborted,
    AbortRequest,
    AddRequest,
    Embedded,
    NewTokens,
    PauseRequest,
    PromptScores,
    PushBackRequest,
    Rejected,
    ResumeRequest,
    Started,
    StopSequence,
)
from pagoda.engine.questions import Answer, Ask, NoAnswer, Stories, WhyQuestion
from pagoda.engine.wire import (
    MAX_FRAME_BYTES,
    Alive,
    Broken,
    FrameDecoder,
    FromEngine,
    Hello,
    Loading,
    Published,
    Report,
    ToEngine,
    frame,
)
from pagoda.scheduler.decisions import Decision, Reason
from pagoda.scheduler.words import Story

SCORE = TokenLogprob(7, -0.5, 2, (3, 7), (-0.25, -0.5))
REPORT = Report(1.5, 2, 3, 4, (5,), (6,), 7, 8, 9, 10, 11, 0.125, 12)
UPDATES = (
    Started("a", 1.0, -(2**63), 32),
    NewTokens("a", 1, 2.0, (5, 6), (SCORE, SCORE), "stop", 6),
    NewTokens("b", 0, 2.0, ()),
    PromptScores("a", ((1, SCORE),)),
    Embedded("a", 2.0, b"\0\0\x80\x3f"),
    Rejected.of("c", CapacityError("too long")),
    Aborted("d"),
)
STORY = Story("a-0", (Decision(3, "a-0", 0, Reason.QUEUED, (5, 0)),), {3: 0.25})
FROM_ENGINE: list[FromEngine] = [
    Hello(12),
    Loading(1, 2),
    Published(UPDATES, REPORT),
    Answer(7, Stories((STORY,))),
    Answer(8, NoAnswer("why not")),
    Alive(1.5),
    Broken("why"),
]
SAMPLING = SamplingParams(n=2, stop=("x",), logit_bias={3: -1.0}, seed=5, max_tokens=None)
TO_ENGINE: list[ToEngine] = [
    AddRequest(Request(request_id="a", prompt_token_ids=(1, 2), sampling=SAMPLING, media_digests=(b"d",))),
    AbortRequest("a"),
    StopSequence("a", 1),
    PushBackRequest("a"),
    PauseRequest("a"),
    ResumeRequest("a"),
    Ask(7, WhyQuestion("a")),
]


@pytest.mark.parametrize(("kind", "records"), [(FromEngine, FROM_ENGINE), (ToEngine, TO_ENGINE)], ids=["from", "to"])
@given(st.data())
def test_records_come_out_whole_however_they_are_cut(kind: object, records: list[FromEngine], data: st.DataObject):
    stream = b"".join(frame(record) for record in records)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder: FrameDecoder[FromEngine] = FrameDecoder(kind)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == records


@pytest.mark.parametrize(
    "error", [InvalidRequest("stop", "is odd: 1"), CapacityError("never fits"), EngineError("gone")], ids=repr
)
def test_an_error_of_the_engine_is_the_same_error_on_this_side(error: PagodaError):
    found = Rejected.of("a", error).error
    assert type(found) is type(error) and str(found) == str(error)
    assert getattr(found, "field", None) == getattr(error, "field", None)


def test_a_frame_that_is_too_long_is_refused_before_it_is_read():
    decoder: FrameDecoder[FromEngine] = FrameDecoder(FromEngine)
    with pytest.raises(EngineError, match="most is"):
        decoder.feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little"))


@given(st.binary(max_size=40))
@example(b"\x92\xa5abort\xa1\xff")  # a name in no UTF-8
@example(b"\x91" * 2000)  # lists within lists
def test_bytes_that_are_no_record_are_refused(payload: bytes):
    decoder: FrameDecoder[ToEngine] = FrameDecoder(ToEngine)
    with pytest.raises(EngineError, match="no record"):
        decoder.feed((len(payload)).to_bytes(4, "little") + payload)


def test_a_record_of_the_other_direction_is_refused():
    with pytest.raises(EngineError, match="no record"):
        FrameDecoder(ToEngine).feed(frame(Hello(1)))
