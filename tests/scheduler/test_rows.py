from __future__ import annotations

from pagoda.scheduler import Submit
from pagoda.scheduler.rows import RowTable
from pagoda.scheduler.sequence import NO_ROW, Sequence


def sequence(number: int) -> Sequence:
    event = Submit(request_id="r", num_prompt_tokens=5, max_total_tokens=9)
    return Sequence(number, event, 0, number, (0, number, 0), 5, [])


def test_a_tenant_moves_in_and_out() -> None:
    rows = RowTable(3)
    tenant = sequence(8)
    row = rows.move_in(tenant, known=5, computed=4)
    assert row == tenant.row == 0
    assert (rows.known[0], rows.computed[0], rows.settled[0], rows.limit[0]) == (5, 4, 4, 9)
    assert rows.owner[0] == 8 and rows.tenant(0) is tenant
    assert rows.num_running == 1
    rows.decoding[0] = True
    assert rows.move_out(tenant) == 0
    assert tenant.row == NO_ROW
    assert rows.owner[0] == -1 and not rows.decoding[0]
    assert rows.num_running == 0


def test_the_row_that_was_left_last_is_taken_first() -> None:
    rows = RowTable(3)
    tenants = [sequence(number) for number in range(3)]
    assert [rows.move_in(tenant, 5, 0) for tenant in tenants] == [0, 1, 2]
    rows.move_out(tenants[0])
    rows.move_out(tenants[2])
    assert rows.move_in(sequence(3), 5, 0) == 2


def test_nothing_of_the_last_tenant_is_left() -> None:
    rows = RowTable(1)
    old = sequence(0)
    rows.move_in(old, 9, 9)
    rows.in_flight[0] = 3
    rows.move_out(old)
    rows.move_in(sequence(1), 5, 0)
    assert (rows.settled[0], rows.in_flight[0], rows.computed[0]) == (0, 0, 0)
