from __future__ import annotations

import inspect

import numpy as np

from pagoda.kernels.base import Operators
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.sampling import SamplingBatch


def test_the_table_has_every_operator_with_the_same_parameters():
    for name, operator in inspect.getmembers(Operators, inspect.isfunction):
        if name.startswith("_"):
            continue
        own = inspect.signature(getattr(ReferenceOperators, name))
        wanted = inspect.signature(operator)
        assert list(own.parameters) == list(wanted.parameters), name
        for parameter in wanted.parameters.values():
            assert own.parameters[parameter.name].default == parameter.default, name


def test_sample_is_the_operator_of_the_sampling_folder():
    logits = np.array([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]], np.float32)
    sampled = ReferenceOperators().sample(logits, SamplingBatch(num_rows=2))
    assert sampled.token_ids.tolist() == [1, 0]
