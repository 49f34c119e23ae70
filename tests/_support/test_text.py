"""Sizes in words of three digits."""

import pytest

from particleflow._support.text import nearest_name, readable_size, suggestion


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (999.6, "1 kB"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (5_674_000, "5.67 MB"),
        (3.2e12, "3.2 TB"),
        (4e15, "4 PB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(size, said):
    assert readable_size(size) == said


def test_a_name_is_suggested_only_where_it_is_near_and_a_long_list_is_not_told():
    kinds = [f"kernel_{number}" for number in range(40)]
    assert suggestion("gausian", ["gaussian", "laplace"]) == "did you mean 'gaussian'?"
    assert suggestion("wobble", ["gaussian", "laplace"]) == "there is: gaussian, laplace"
    assert suggestion("wobble", ["gaussian", "laplace"], "`list`") == "there is: gaussian, laplace"
    assert suggestion("wobble", kinds, "`particleflow kinds kernel`") == "`particleflow kinds kernel` lists all 40"
    assert suggestion("wobble", []) == "there is none"
    assert nearest_name("", kinds) is nearest_name("ball", ["dual", "bowl"]) is None
