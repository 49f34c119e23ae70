"""Sizes in words of three digits."""

import pytest

from particleflow._support.text import readable_size


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
