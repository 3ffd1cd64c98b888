"""Bytes compared many at once, against numpy's comparison of one byte at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataeff.kernel.blocks import BLOCK, between, sharing
from dataeff.kernel.compiled import compiled
from dataeff.kernel.memory import count_ones


@compiled
def compare(array, index, first, last):
    some = between(array, index, first, last)
    return some, count_ones(some)


@given(
    data=st.binary(min_size=BLOCK, max_size=BLOCK + 20),
    shift=st.integers(0, 20),
    first=st.integers(0, 255),
    last=st.integers(0, 255),
)
def test_a_bit_is_set_for_each_byte_in_the_span(data, shift, first, last):
    first, last = sorted((first, last))
    array = np.frombuffer(data, np.uint8)
    index = min(shift, len(data) - BLOCK)
    inside = (array >= first) & (array <= last)
    wanted = sum(1 << at for at in np.flatnonzero(inside[index : index + BLOCK]).tolist())
    found, ones = compare(array, index, np.uint8(first), np.uint8(last))
    assert found == wanted
    assert ones == wanted.bit_count()


@compiled
def share(array, index, bits):
    return sharing(array, index, bits)


@given(data=st.binary(min_size=BLOCK, max_size=BLOCK + 20), shift=st.integers(0, 20), bits=st.integers(0, 255))
def test_a_bit_is_set_for_each_byte_that_shares_one_with_those_given(data, shift, bits):
    array = np.frombuffer(data, np.uint8)
    index = min(shift, len(data) - BLOCK)
    wanted = sum(1 << at for at in np.flatnonzero(array[index : index + BLOCK] & bits).tolist())
    assert share(array, index, np.uint8(bits)) == wanted
