from chairlift.records.client import ClientVerdict, ErrorClass, Evidence, RequestTrace


def evidence(value: float | None, *, decides: bool = True) -> Evidence:
    """Held to a limit of 10."""
    return Evidence("lag", value, 10, "ns", decides=decides, meaning="")


def test_a_request_without_an_error_has_a_whole_answer() -> None:
    """Any error class is none."""
    assert RequestTrace(0, 5, warmup=False, end=9).ok
    assert not any(RequestTrace(0, 5, warmup=False, end=9, error=error).ok for error in ErrorClass)


def test_the_send_lag_counts_from_the_schedule() -> None:
    """And there is none where nothing was sent."""
    assert RequestTrace(0, 5, warmup=False, end=9, sent=7).send_lag == 2
    assert RequestTrace(0, 5, warmup=False, end=9).send_lag is None


def test_a_limit_is_exceeded_above_it_and_never_by_what_is_unknown() -> None:
    """Exactly at the limit is within it."""
    assert [evidence(value).exceeded for value in (9, 10, 11, None)] == [False, False, True, False]


def test_reasons_are_the_numbers_that_decided() -> None:
    """Others may be above their limits and stand beside."""
    within, decided, beside = evidence(1), evidence(11), evidence(12, decides=False)

    assert ClientVerdict(bottleneck=True, evidence=(within, decided, beside)).reasons == (decided,)
