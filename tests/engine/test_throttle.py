from chairlift.engine.throttle import Throttle


def test_one_line_a_period() -> None:
    """T12: however often a cause is met, one line a period; what was held back is counted and told once."""
    throttle = Throttle(period=100)

    spoken = [now for now in range(0, 350, 10) if throttle.speaks("no blocks", now)]

    assert spoken == [0, 100, 200, 300]
    assert throttle.held_back("no blocks") == 35 - 4
    assert throttle.held_back("no blocks") == 0


def test_a_new_cause_is_spoken_of_at_once() -> None:
    """Each cause has a period of its own."""
    throttle = Throttle(period=100)

    assert throttle.speaks("no blocks", 0)
    assert throttle.speaks("a step failed", 1)
    assert not throttle.speaks("no blocks", 2)
