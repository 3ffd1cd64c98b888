"""Checksums of buffers, files, blocks, and of bytes that hold their own."""

import io
import itertools
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.checksums import (
    BLANK_SEAL,
    BLOCK_BYTES,
    BlockWriter,
    block_checksums,
    crc32c,
    crc32c_of_file,
    file_block_checksums,
    from_hex,
    seal,
    seal_holds,
    to_hex,
)
from dataeff.errors import PlanError

POLYNOMIAL = 0x82F63B78


def bit_by_bit(data: bytes) -> int:
    """CRC-32C from its definition: reflected, all ones in, all ones out."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_it_is_castagnoli_and_not_the_crc_of_zip():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"123456789") != zlib.crc32(b"123456789")
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"") == 0


@settings(deadline=None)
@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_it_follows_the_definition_and_can_be_carried_on(data, cut):
    assert crc32c(data) == bit_by_bit(data)
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


def test_whatever_has_a_buffer_can_be_checked():
    data = np.arange(600, dtype=np.uint16)
    wanted = crc32c(data.tobytes())
    read_only = data.view()
    read_only.flags.writeable = False
    for given_as in (data, read_only, data.reshape(2, 300), memoryview(data), bytearray(data), pa.py_buffer(data)):
        assert crc32c(given_as) == wanted


@settings(deadline=None)
@given(data=st.binary(max_size=200), block=st.integers(1, 64), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_blocks_are_the_same_from_a_buffer_and_from_any_sequence_of_writes(data, block, cuts):
    wanted = [bit_by_bit(data[start : start + block]) for start in range(0, len(data), block)]
    assert block_checksums(data, block).tolist() == wanted
    sink = io.BytesIO()
    writer = BlockWriter(sink, block)
    edges = [0, *sorted(cuts), len(data)]
    for start, stop in itertools.pairwise(edges):
        writer.write(data[start:stop])
    assert writer.finish().tolist() == wanted
    assert writer.num_bytes == len(data)
    assert sink.getvalue() == data


def test_files_are_read_in_blocks(tmp_path):
    data = np.random.default_rng(0).bytes(2 * BLOCK_BYTES + 5)
    path = tmp_path / "file"
    path.write_bytes(data)
    assert crc32c_of_file(path) == crc32c(data)
    assert file_block_checksums(path, len(data)).tolist() == block_checksums(data).tolist()
    assert file_block_checksums(path, BLOCK_BYTES + 1).tolist() == block_checksums(data[: BLOCK_BYTES + 1]).tolist()
    assert file_block_checksums(path, 10 * BLOCK_BYTES).tolist() == block_checksums(data).tolist()
    assert file_block_checksums(path, 0).tolist() == []


@settings(deadline=None)
@given(crcs=st.lists(st.integers(0, 2**32 - 1)))
def test_text_of_checksums_reads_as_numbers_and_comes_back(crcs):
    text = to_hex(np.array(crcs, np.uint32))
    assert text == "".join(f"{crc:08x}" for crc in crcs)
    assert from_hex(text).tolist() == crcs


@pytest.mark.parametrize("text", ["123", "zzzzzzzz", "0123456789"])
def test_text_that_is_no_checksums_is_refused(text):
    with pytest.raises(ValueError):
        from_hex(text)


def test_a_seal_holds_until_any_bit_is_flipped():
    data = seal(b"before " + BLANK_SEAL + b" after")
    start = data.index(BLANK_SEAL[:-8])
    assert seal_holds(data, data[start : start + len(BLANK_SEAL)])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not seal_holds(bytes(damaged), bytes(damaged[start : start + len(BLANK_SEAL)]))


@pytest.mark.parametrize("data", [b"", b"no seal", BLANK_SEAL * 2, BLANK_SEAL + b"a" + BLANK_SEAL[:-1] + b"1"])
def test_there_must_be_one_place_for_a_seal(data):
    with pytest.raises(PlanError, match="once, where its seal goes"):
        seal(data)
    assert not seal_holds(data, BLANK_SEAL)
