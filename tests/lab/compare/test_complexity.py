from dataclasses import fields

import pytest

from chairlift.core.config import POLICIES, PolicyName, SchedulerConfig
from chairlift.lab.compare.complexity import SETTINGS, lines_of_code, lines_of_policy, policy_modules


def test_settings_are_the_schedulers() -> None:
    """Of every policy, and each of them exists."""
    names = {field.name for field in fields(SchedulerConfig)}

    assert SETTINGS.keys() == set(POLICIES)
    assert all(set(several) <= names for several in SETTINGS.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_the_modules_of_a_policy_are_its_own(policy: PolicyName) -> None:
    """Its page and its batcher, and no other policy's page."""
    modules = policy_modules(policy)

    assert f"chairlift.core.policies.{policy}" in modules
    assert not {f"chairlift.core.policies.{other}" for other in POLICIES if other != policy} & set(modules)
    assert 100 < lines_of_policy(policy) < 2000


def test_lines_of_code_are_lines_that_hold_code() -> None:
    """No blank lines, no comments, no docstrings, no strings under fields; a statement over two lines is two."""
    source = """'''A module.

Of text.
'''

# a comment
x = 1  # one


class A:
    '''Text.'''

    y: int = 2
    '''A field.'''
    z = (1,
         2)
"""

    assert lines_of_code(source) == 5
