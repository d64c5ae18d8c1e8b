from chairlift.advisor.memory.lengths import Lengths
from chairlift.advisor.memory.useful import NEARLY_ALL, point, usefulness
from chairlift.devices.model import DeviceModel
from tests.devices.helpers import device_model, terms

LENGTHS = Lengths.fixed(100, 100)


def flat() -> DeviceModel:
    """Every step takes 10 ms, whatever is in it."""
    return device_model(terms(floor="10ms"))


def test_where_a_step_costs_the_same_every_sequence_pays() -> None:
    """A step gives n / (1 + n / 100), since every hundredth is a prompt's: 82 give nine tenths of what 100 give, and
    memory is what binds.
    """
    found = usefulness(flat(), LENGTHS, 100)

    assert found.useful == 82
    assert found.binding == "memory"
    assert found.gain_of_twice is not None
    assert found.gain_of_twice > 1.3


def test_where_every_sequence_costs_as_much_as_the_weights_few_pay() -> None:
    """1 ms for the weights, 10 ms for each context of 150: one sequence gives 10 of 11 parts of the most there is."""
    model = device_model(terms(floor="1ms", per_context="66667ns"))
    found = usefulness(model, LENGTHS, 100)

    assert found.useful <= 2
    assert found.binding == "bandwidth"


def test_arithmetic_may_be_what_a_sequence_costs() -> None:
    """5 ms a token, nothing for its context."""
    found = usefulness(device_model(terms(floor="1ms", per_token="5ms")), LENGTHS, 100)

    assert found.binding == "compute"


def test_the_useful_number_is_the_first_that_is_enough() -> None:
    """One less gives less than nine tenths of what all that fit give."""
    model = device_model(terms(floor="10ms", per_token="30us", per_context="400ns"))
    found = usefulness(model, LENGTHS, 120)
    most = found.at(120).tokens_per_second

    assert found.at(found.useful).tokens_per_second >= NEARLY_ALL * most
    assert point(model, LENGTHS, found.useful - 1).tokens_per_second < NEARLY_ALL * most
    assert [one.sequences for one in found.points] == sorted({1, 2, 4, 8, 16, 32, 64, 120, found.useful})


def test_nothing_is_said_beyond_the_device_models_range() -> None:
    """256 rows were measured: 200 fit, so twice as many are not known."""
    found = usefulness(flat(), LENGTHS, 200)

    assert found.gain_of_twice is None
    assert found.binding == "not known"
    assert usefulness(flat(), LENGTHS, 10_000).fits == 256


def test_as_plain_values() -> None:
    """Times in seconds."""
    told = usefulness(flat(), LENGTHS, 4).to_json()

    assert told["points"][0] == {
        "sequences": 1,
        "tokens_per_second": point(flat(), LENGTHS, 1).tokens_per_second,
        "between_tokens_s": 0.01,
    }
