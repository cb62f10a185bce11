"""How long prompts and answers are: a number, or a distribution to draw from."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from pagoda.core.errors import InvalidRequest

FORMS = {
    "constant": ("N",),
    "uniform": ("LOW", "HIGH"),
    "normal": ("MEAN", "DEVIATION"),
    "lognormal": ("MEDIAN", "SIGMA"),
}


@dataclass(frozen=True, slots=True)
class Lengths:
    """A length is never below 1."""

    kind: str
    numbers: tuple[float, ...]

    @classmethod
    def parse(cls, option: str, text: str) -> Lengths:
        """`128`, `uniform:100,1024`, `normal:500,100` or `lognormal:300,0.8`."""
        kind, _, rest = text.partition(":") if ":" in text else ("constant", "", text)
        names = FORMS.get(kind)
        if names is None:
            raise InvalidRequest(option, f"{kind!r} is no distribution; choose from {', '.join(FORMS)}")
        try:
            numbers = tuple(float(word) for word in rest.split(","))
        except ValueError:
            numbers = ()
        if len(numbers) != len(names) or not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise InvalidRequest(option, f"{text!r} is not understood; write {_form(kind)}")
        if numbers[0] < 1 or (kind == "uniform" and numbers[1] < numbers[0]):
            raise InvalidRequest(option, f"{text!r} has lengths below 1 or an end before its beginning")
        return cls(kind, numbers)

    def draw(self, rng: random.Random) -> int:
        first = self.numbers[0]
        match self.kind:
            case "uniform":
                return rng.randint(int(first), int(self.numbers[1]))
            case "normal":
                return max(1, round(rng.gauss(first, self.numbers[1])))
            case "lognormal":
                return max(1, round(first * math.exp(rng.gauss(0.0, self.numbers[1]))))
        return int(first)

    def __str__(self) -> str:
        numbers = ",".join(f"{number:g}" for number in self.numbers)
        return numbers if self.kind == "constant" else f"{self.kind}:{numbers}"


def _form(kind: str) -> str:
    names = ",".join(FORMS[kind])
    return names if kind == "constant" else f"{kind}:{names}"
