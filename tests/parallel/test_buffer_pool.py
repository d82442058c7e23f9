"""The buffer pool reuses freed memory, but never memory that is in use."""

import gc
import threading

import numpy as np
import pytest

import fastcos
from fastcos.parallel import buffer_pool

LARGE = (5, 2**18)  # 5 MiB of float32

needs_reuse = pytest.mark.skipif(
    buffer_pool.MADV_FREE is None,
    reason="this system has no MADV_FREE",
)


@pytest.fixture(scope="module", autouse=True)
def no_garbage():
    # After many tests, collecting the garbage takes half a second. The garbage is collected only
    # once, because the tests of this file create no reference cycles.
    gc.collect()


@pytest.fixture(autouse=True)
def empty_pool():
    buffer_pool.release()
    yield
    buffer_pool.release()


def address(array):
    return array.ctypes.data


@pytest.mark.parametrize(
    "shape", [(3, 5), (0, 4), LARGE, pytest.param((2**20, 3), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "dtype",
    [np.float32, *(pytest.param(t, marks=pytest.mark.slow) for t in (np.float64, np.uint16))],
)
def test_empty_returns_an_aligned_array(shape, dtype):
    array = buffer_pool.empty(shape, dtype)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.flags.aligned
    if array.size:
        assert address(array) % 64 == 0
        array[:] = 7
        assert (array == 7).all()


@needs_reuse
def test_empty_aligns_large_arrays_to_huge_pages():
    assert address(buffer_pool.empty(LARGE, np.float32)) % 2**21 == 0


@needs_reuse
def test_empty_reuses_freed_memory():
    array = buffer_pool.empty(LARGE, np.float32)
    before = address(array)
    del array
    assert address(buffer_pool.empty((2**18, 4), np.float32)) == before


def test_empty_does_not_reuse_memory_under_a_view():
    array = buffer_pool.empty(LARGE, np.float32)
    array[:] = np.arange(2**18)
    holders = {
        "row": array[3],
        "column": array[:, 5].reshape(-1)[::2],
        "bytes": array.view(np.uint8)[-1:],
        "memoryview": memoryview(array[1]),
    }
    expected = {name: np.array(view) for name, view in holders.items()}
    del array
    while holders:
        other = buffer_pool.empty(LARGE, np.float32)
        other[:] = np.nan
        for name, view in holders.items():
            np.testing.assert_array_equal(np.asarray(view), expected[name])
        del holders[next(iter(holders))], view, other


@needs_reuse
def test_empty_does_not_reuse_much_larger_memory():
    array = buffer_pool.empty((2**23,), np.float32)
    before = address(array)
    del array
    small = buffer_pool.empty((2**21,), np.float32)
    assert address(small) != before
    assert address(buffer_pool.empty((2**22 + 1,), np.float32)) == before


@needs_reuse
def test_pool_holds_a_few_blocks():
    arrays = [buffer_pool.empty(LARGE, np.float32) for _ in range(9)]
    del arrays
    assert len(buffer_pool._free_blocks) == buffer_pool.MAX_FREE_BLOCKS
    buffer_pool.release()
    assert not buffer_pool._free_blocks


@needs_reuse
@pytest.mark.parametrize(("mebibytes", "blocks"), [(23, 0), (24, 1)])
def test_pool_fits_the_working_memory(mebibytes, blocks):
    # An array of 5 MiB takes 6 MiB in whole huge pages. The pool keeps a block only if four blocks
    # of its size fit into the working memory. Four blocks of 6 MiB take 24 MiB.
    fastcos.set_config(working_memory=mebibytes)
    array = buffer_pool.empty(LARGE, np.float32)
    del array
    assert len(buffer_pool._free_blocks) == blocks


def test_arrays_of_many_threads_never_share_memory():
    wrong = []

    def work(number):
        for turn in range(10):
            array = buffer_pool.empty(LARGE, np.float32)
            array[:] = 1000 * number + turn
            if not (array == 1000 * number + turn).all():
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
