"""What the device draws from logits, against the reference, with what plans and the host send."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pagoda.core.plan import RowPayload
from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding import SamplingState
from pagoda.executor.cuda import drawing
from pagoda.executor.cuda.drawing import DeviceDraws
from pagoda.executor.cuda.wishes import DrawKind, Wishes
from pagoda.kernels.cuda.sampling_rules import DrawingRows
from pagoda.kernels.reference.sampling import sample
from pagoda.kernels.sampling import TokenLogprobs

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB_SIZE = 97
MAX_ROWS = 6
MAX_LEN = 40
END_TOKEN = 5
NUM_PROMPT_TOKENS = 12
GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(temperature=0.7, seed=1)
FILTERED = SamplingParams(temperature=1.3, top_k=12, top_p=0.8, min_p=0.01, seed=2)
FILTERED_MORE = SamplingParams(temperature=0.8, top_p=0.95, min_p=0.001, seed=8)
SCORED = SamplingParams(temperature=0, logprobs=3)
PENALISED = SamplingParams(temperature=0.9, top_k=30, repetition_penalty=1.3, frequency_penalty=0.4, logprobs=0, seed=3)
FAVOURED = SamplingParams(temperature=0, logit_bias={3: 5.0, 96: -1.0}, presence_penalty=0.5)
BANNED = SamplingParams(temperature=1.1, min_tokens=5, banned_token_ids=(1, 2, 3), stop_token_ids=(9, 10), seed=4)
ALLOWED = SamplingParams(temperature=2.0, allowed_token_ids=(7, 8, 40, 96), min_tokens=4, logprobs=20, seed=5)
TYPICAL = SamplingParams(temperature=0.9, typical_p=0.6, top_p=0.9, repetition_penalty=1.2, logprobs=2, seed=6)
TYPICAL_AMONG_FEW = SamplingParams(temperature=1.2, typical_p=0.4, top_k=20, min_p=0.02, seed=7)
TOKENS = np.random.default_rng(3).integers(0, 30, (MAX_ROWS, MAX_LEN)).astype(np.int32)


class Rows:
    """A device's rows and the state that the reference draws with."""

    def __init__(self, *params: SamplingParams) -> None:
        self.draws = DeviceDraws(MAX_ROWS, VOCAB_SIZE, torch.from_numpy(TOKENS).to(DEVICE))
        self.restart(*params)

    def restart(self, *params: SamplingParams) -> None:
        """New tenants for the first rows."""
        self.params = params
        self.wishes = [
            Wishes.of(
                RowPayload(row, TOKENS[row], NUM_PROMPT_TOKENS, sampling, self.seed(row)), (END_TOKEN,), VOCAB_SIZE
            )
            for row, sampling in enumerate(params)
        ]
        for row, wishes in enumerate(self.wishes):
            self.draws.start(row, wishes)
        self.draws.flush()

    def seed(self, row: int) -> int:
        return (self.params[row].seed or 0) + (row << 40)

    def state(self, lengths: np.ndarray, is_sent: bool = False) -> SamplingState:
        state = SamplingState(MAX_ROWS, (END_TOKEN,))
        for row, wishes in enumerate(self.wishes):
            sampling = wishes.drawn_with if is_sent else wishes.sampling
            tokens = TOKENS[row, : lengths[row]].tolist()
            ids = (tokens[:NUM_PROMPT_TOKENS], tokens[NUM_PROMPT_TOKENS:])
            state.add(row, sampling, self.seed(row), row, *(() if is_sent else ids))
        return state

    def choose(self, logits: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, Any]:
        """Token ids with what is broken behind them, and scores. A row of -1 is padding."""
        count, is_real = len(rows), rows >= 0
        own = rows[is_real]
        self.draws.send(self.state(lengths, is_sent=True).batch(own, lengths[own]).draws)
        outcomes = torch.full((2 * count,), -7, dtype=torch.int32, device=DEVICE)
        positions = np.where(is_real, lengths[rows], 0).astype(np.int32)
        kind = DrawKind(max(self.wishes[row].kind for row in own.tolist()))
        where = DrawingRows(*(torch.from_numpy(one.astype(np.int32)).to(DEVICE) for one in (rows, positions)))
        self.draws.choose(outcomes, torch.from_numpy(logits).to(DEVICE), kind, where)
        num_scores = np.array([self.wishes[row].num_scores for row in own.tolist()], np.int32)
        scores = self.draws.scores(self.draws.fetch_scores(len(own)), num_scores) if num_scores.any() else None
        return outcomes.cpu().numpy(), scores


def logits_of(count: int, attempt: int = 0) -> np.ndarray:
    return 3 * np.random.default_rng(attempt).standard_normal((count, VOCAB_SIZE), np.float32)


def assert_same_scores(found: TokenLogprobs | None, expected: TokenLogprobs | None) -> None:
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.ranks, expected.ranks)
    np.testing.assert_array_equal(found.num_top, expected.num_top)
    np.testing.assert_allclose(found.chosen, expected.chosen, rtol=2e-7)
    for own, other, ids, wanted, count in zip(
        found.top_values, expected.top_values, found.top_token_ids, expected.top_token_ids, found.num_top, strict=True
    ):
        np.testing.assert_array_equal(ids[:count], wanted[:count])
        np.testing.assert_allclose(own[:count], other[:count], rtol=2e-7)


@pytest.mark.parametrize("rows_at_once", [2, 64])
@pytest.mark.parametrize(
    "params",
    [
        [GREEDY] * 3,
        [DRAWN, GREEDY, DRAWN],
        [FILTERED, DRAWN, GREEDY, FILTERED],
        [GREEDY, SCORED],
        [SCORED, FILTERED, PENALISED],
        [FAVOURED, GREEDY, FAVOURED],
        [BANNED, ALLOWED, GREEDY, DRAWN, SCORED, PENALISED],
        [TYPICAL, GREEDY, TYPICAL],
        [TYPICAL_AMONG_FEW, FILTERED, BANNED, DRAWN, TYPICAL],
    ],
    ids=str,
)
def test_tokens_and_scores_are_those_of_the_reference(
    params: list[SamplingParams], rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "MOST_ROWS", rows_at_once)
    device = Rows(*params)
    rows = np.random.default_rng(1).permutation(len(params))
    for attempt in range(8):  # past the first position at which rows may stop
        lengths = np.full(MAX_ROWS, NUM_PROMPT_TOKENS + attempt, np.int32)
        logits = logits_of(len(rows), attempt)
        expected = sample(logits, device.state(lengths).batch(rows, lengths[rows]))
        found, scores = device.choose(logits, rows, lengths)
        np.testing.assert_array_equal(found[: len(rows)], expected.token_ids)
        assert not found[len(rows) :].any()
        assert_same_scores(scores, expected.logprobs)


def test_a_row_is_drawn_as_alone_whatever_others_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The borders that each row is drawn within, to the bit."""
    found: list[np.ndarray] = []
    usual = drawing.sample_tokens

    def noting(*args: Any) -> None:
        borders = args[5] if len(args) > 5 else None
        if borders is not None:
            found.append(np.stack([borders.logits.cpu().numpy(), borders.token_ids.cpu().numpy().view(np.float32)]))
        usual(*args)

    monkeypatch.setattr(drawing, "sample_tokens", noting)
    rows, lengths = np.arange(3), np.full(MAX_ROWS, 20, np.int32)
    logits = logits_of(3)
    for other in (FILTERED, PENALISED, TYPICAL):
        Rows(FILTERED, FILTERED_MORE, other).choose(logits, rows, lengths)
    for borders in found:
        np.testing.assert_array_equal(borders[:, :2], found[0][:, :2])
    assert len(found) == 3


def test_a_row_forgets_its_last_tenant() -> None:
    device = Rows(PENALISED, BANNED, ALLOWED, FAVOURED)
    device.restart(GREEDY, FAVOURED, BANNED, GREEDY)
    rows, lengths = np.arange(4), np.full(MAX_ROWS, 30, np.int32)
    logits = logits_of(4)
    expected = sample(logits, device.state(lengths).batch(rows, lengths[rows]))
    np.testing.assert_array_equal(device.choose(logits, rows, lengths)[0][:4], expected.token_ids)


def test_who_asks_for_nothing_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Rows(GREEDY, FILTERED)
    edits = device.draws._rules._edits
    device.draws.start(0, device.wishes[1])
    assert not edits._waiting
    device.restart(SCORED)
    device.draws.start(0, device.wishes[0])
    assert edits._waiting


def test_padding_is_greedy_and_broken_rows_say_so() -> None:
    device = Rows(PENALISED, BANNED)
    logits, lengths = logits_of(4), np.full(MAX_ROWS, 20, np.int32)
    logits[1, 2] = np.nan  # a token that is banned there
    found, _ = device.choose(logits, np.array([0, 1, -1, -1]), lengths)
    assert found[2:4].tolist() == logits[2:].argmax(1).tolist()
    assert found[4:].tolist() == [0, 1, 0, 0]


def test_a_step_of_greedy_rows_draws_nothing_of_the_step_before() -> None:
    device = Rows(PENALISED, DRAWN, SCORED)
    lengths = np.full(MAX_ROWS, 20, np.int32)
    device.choose(logits_of(2), np.array([0, 1]), lengths)
    logits = logits_of(1, 1)
    assert device.choose(logits, np.array([2]), lengths)[0][0] == logits.argmax()
