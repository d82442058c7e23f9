"""Convert arrays, tensors, Arrow columns and table columns exactly to NumPy arrays.

Every public function that accepts rows converts them with this module. If a value cannot be
converted exactly, or could be read in two ways, an error names the call to use instead. To
recognise an object of another library, such as a PyTorch tensor or a sparse matrix, this module
does not import the library, but looks for it in ``sys.modules``. A caller who has such an object
has already imported its library. Objects of other libraries are read through the interfaces that
they offer: ``__array__``, Arrow's C data interface, or DLPack.
"""

import contextlib
import sys
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.validation.column_names import ITEM_WORDS, USER_WORDS, column_word, is_id

Array = npt.NDArray[Any]


def as_array(name: str, values: Any) -> Array:
    """Return ``values`` as an array of any shape with a boolean, integer or float dtype."""
    array = _as_numpy(name, from_container(name, values))
    kind = array.dtype.kind
    if kind == "O":
        return _from_objects(name, array)
    if kind in "fiub":
        return array
    hint = " (bfloat16? give .view(ml_dtypes.bfloat16))" if array.dtype == "V2" else ""
    raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}{hint}")


def is_sparse(values: Any) -> bool:
    """Return whether ``values`` is a SciPy sparse matrix, without importing scipy.sparse.

    If scipy.sparse has not been imported yet, ``values`` cannot be a sparse matrix.
    """
    if "scipy.sparse" not in sys.modules:
        return False
    # If another thread is importing scipy.sparse, the next line waits for that thread.
    from scipy.sparse import issparse

    return bool(issparse(values))


def from_container(name: str, values: Any) -> Any:
    """Convert a container of another library to an array if NumPy cannot read it exactly.

    Values that NumPy reads exactly are returned unchanged. For a masked array, TypeError is raised,
    because NumPy would drop its mask. TypeError is also raised for a table with a column of ids,
    because NumPy would use the ids as coordinates.
    """
    if is_sparse(values):
        raise TypeError(f"{name} must be a dense array, got a sparse matrix")
    # NumPy would convert a LazyFrame of polars to an array whose only entry is the LazyFrame.
    if type(values).__name__ == "LazyFrame":
        raise TypeError(f"{name} must be a table in memory, got a LazyFrame (use .collect())")
    # If numpy.ma has not been imported, `values` cannot be a masked array. Importing numpy.ma here
    # would take 15 ms.
    if "numpy.ma" in sys.modules and isinstance(values, np.ma.MaskedArray):
        got = "a masked array (use .filled(value))"
        raise TypeError(f"{name} must be an array without a mask, got {got}")
    if isinstance(values, np.ndarray):
        # float32 can represent every bfloat16, float8 and int4 number of ml_dtypes exactly.
        is_extension = values.dtype.isbuiltin == 2 and np.can_cast(values.dtype, np.float32)
        return values.astype(np.float32) if is_extension else values
    torch, arrow = sys.modules.get("torch"), sys.modules.get("pyarrow")
    if torch is not None:
        if isinstance(values, torch.Tensor):
            return _from_torch(name, values, torch)
        if isinstance(values, (list, tuple)) and values and isinstance(values[0], torch.Tensor):
            return [_from_torch(name, tensor, torch) for tensor in values]
    if arrow is not None and isinstance(values, (arrow.Array, arrow.ChunkedArray)):
        return from_arrow(name, values)
    if arrow is not None and isinstance(values, (arrow.Table, arrow.RecordBatch)):
        _check_columns(name, values.column_names)
        columns = [from_arrow(f"{name}[{key!r}]", values[key]) for key in values.column_names]
        return np.column_stack(columns) if columns else np.empty((0, 0))
    if hasattr(values, "columns") and hasattr(values, "dtypes"):  # pandas, polars
        _check_columns(name, [str(column) for column in values.columns])
    if not hasattr(values, "__array__"):
        if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
            return _from_arrow_capsule(name, values)
        if hasattr(values, "__dlpack__"):
            return _from_dlpack(name, values)
    return values


def as_shared_array(values: Any) -> Any:
    """Return a dense PyTorch tensor in main memory as an array that shares the tensor's memory.

    A value that is not a dense tensor in main memory is returned unchanged. A bfloat16 tensor is
    returned as an array of the type ml_dtypes.bfloat16 if ml_dtypes is installed, and otherwise
    unchanged.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(values, torch.Tensor):
        return values
    if values.layout != torch.strided or values.device.type != "cpu":
        return values
    try:
        if values.dtype == torch.bfloat16:
            from ml_dtypes import bfloat16

            return values.detach().view(torch.int16).numpy().view(bfloat16)
        return values.detach().numpy()
    except (ImportError, TypeError, RuntimeError):  # NumPy lacks the dtype of the tensor
        return values


def from_arrow(name: str, column: Any) -> Array:
    """Return an Arrow column as an array: (n,) for numbers, (n, d) for lists of d numbers."""
    import pyarrow as arrow

    if isinstance(column, arrow.ChunkedArray):
        column = column.combine_chunks()
    # In older versions of pyarrow, combine_chunks returns a ChunkedArray if the column has no rows.
    if isinstance(column, arrow.ChunkedArray):
        return np.empty(0)
    if isinstance(column, arrow.ExtensionArray):
        column = column.storage
    if column.null_count:
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        raise ValueError(f"{name} must have no nulls, got null in {format_rows(nulls)}")
    kind = column.type
    if not any(
        getattr(arrow.types, f"is_{prefix}list")(kind) for prefix in ("", "large_", "fixed_size_")
    ):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    length = _common_length(name, column.value_lengths().to_numpy(zero_copy_only=False))
    return np.asarray(from_arrow(name, column.flatten()).reshape(len(column), length))


def _from_arrow_capsule(name: str, values: Any) -> Any:
    """Read a column or a table through Arrow's C data interface, and return it as an array."""
    try:
        import pyarrow as arrow
    except ImportError:
        raise TypeError(f"{name} is Arrow data, which needs pyarrow: pip install pyarrow") from None
    if hasattr(values, "__arrow_c_stream__"):
        column = arrow.chunked_array(values)
    else:
        column = arrow.chunked_array([arrow.array(values)])
    is_table = arrow.types.is_struct(column.type)
    return from_container(name, arrow.Table.from_struct_array(column) if is_table else column)


def _from_dlpack(name: str, values: Any) -> Array:
    """Convert a tensor of any library to an array through DLPack, without a copy.

    TypeError is raised if the tensor is not in main memory.
    """
    try:
        return np.from_dlpack(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be numbers in main memory, got a tensor that NumPy cannot read: {error}"
        ) from None


def _from_torch(name: str, tensor: Any, torch: Any) -> Array:
    """Return a dense PyTorch tensor in main memory as an array.

    If NumPy lacks the tensor's floating-point type, the numbers are converted to float32, which can
    represent them exactly.
    """
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {tensor.layout} (use .to_dense())")
    if tensor.device.type != "cpu":
        got = f"a tensor on {tensor.device} (use .cpu())"
        raise TypeError(f"{name} must be in main memory, got {got}")
    numpy_types = (torch.float16, torch.float32, torch.float64)
    try:
        tensor = tensor.detach()
        if tensor.dtype.is_floating_point and tensor.dtype not in numpy_types:
            tensor = tensor.float()
        array: Array = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError):  # the tensor is quantised, or holds two numbers per byte
        raise TypeError(f"{name} must hold real numbers, got dtype {tensor.dtype}") from None
    return array


def _as_numpy(name: str, values: Any) -> Array:
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's message would not name the argument
        shapes: list[tuple[int, ...]] = []
        with contextlib.suppress(TypeError, ValueError, RuntimeError, AttributeError):
            shapes = [np.shape(value) for value in values]
    # For example, an array in the memory of a GPU raises an error when it is converted.
    except (TypeError, RuntimeError, AttributeError) as error:
        got = f"{type(values).__module__}.{type(values).__qualname__}"
        raise TypeError(f"{name} must be an array of numbers, got {got}: {error}") from None
    _check_shapes(name, shapes)
    raise ValueError(f"{name} must have rows of one length, got rows that differ")


def _check_shapes(name: str, shapes: list[tuple[int, ...]]) -> None:
    """Raise ValueError if the rows differ in shape; `shapes` contains the shape of every row."""
    if all(len(shape) == 1 for shape in shapes):
        _common_length(name, np.array(shapes).ravel())
    for row, shape in enumerate(shapes):
        if shape != shapes[0]:
            got = f"{shapes[0]} in row 0 and {shape} in row {row}"
            raise ValueError(f"{name} must have rows of one shape, got {got}")


def _common_length(name: str, lengths: Array) -> int:
    """Return the common length of all rows, or 0 if there are no rows.

    ``lengths`` contains the length of each row. ValueError is raised if two rows have different
    lengths.
    """
    different = np.flatnonzero(lengths != lengths[:1])
    if len(different):
        row = different[0]
        got = f"{lengths[0]} numbers in row 0 and {lengths[row]} in row {row}"
        raise ValueError(f"{name} must have rows of one length, got {got}")
    return int(lengths[0]) if len(lengths) else 0


def _from_objects(name: str, array: Array) -> Array:
    """Return an array of Python objects as an array of numbers.

    The objects are numbers, or vectors of equal length, as in a table column that holds vectors.
    """
    if array.ndim == 2 and array.shape[1] == 1 and len(array) and hasattr(array[0, 0], "__len__"):
        array = array[:, 0]  # a table whose single column holds vectors
    if array.ndim == 1 and len(array) and not isinstance(array[0], Real):
        for row, value in enumerate(array):
            if value is None or isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
                got = f"{type(value).__name__} in row {row}"
                raise TypeError(f"{name} must hold vectors of numbers, got {got}")
        rows = [as_array(f"{name}[{row}]", vector) for row, vector in enumerate(array)]
        _check_shapes(name, [vector.shape for vector in rows])
        return np.stack(rows)
    for value in array.flat:
        if not isinstance(value, Real):
            first = array.reshape(-1, array.shape[-1])[0].tolist() if array.ndim else []
            vectors = [n for n, x in enumerate(first) if isinstance(x, (list, tuple, np.ndarray))]
            hint = f" (pass only column {vectors[0]}, which holds vectors)" if vectors else ""
            if array.ndim == 0 and type(value).__module__ != "builtins":
                hint = " (a model? use fastcos.from_model)"
            got = f"dtype object with {type(value).__name__}{hint}"
            raise TypeError(f"{name} must hold real numbers, got {got}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number too large for float64") from None


def _check_columns(name: str, columns: list[str]) -> None:
    """Raise TypeError if a table has a column of ids: NumPy would use the ids as coordinates."""
    ids = [column for column in columns if is_id(column)]
    users = [column for column in columns if column_word(column, USER_WORDS) in USER_WORDS]
    items = [column for column in columns if column_word(column, ITEM_WORDS) in ITEM_WORDS]
    if users and items:
        raise TypeError(
            f"{name} must have one row per user or item, got a table of pairs ({users[0]}, "
            f"{items[0]}). Convert the table to a scipy.sparse matrix, or read its file with "
            "read_interactions"
        )
    if ids:
        raise TypeError(
            f"{name} must have one column per dimension, got the column of ids {ids[0]!r}. Drop "
            "this column, or pass only the column of vectors"
        )


def format_rows(rows: npt.NDArray[Any]) -> str:
    """Return row numbers as text, such as "rows 0, 1, 2, 3, 4 and 7 more"."""
    numbers = ", ".join(str(row) for row in rows[:5])
    ending = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {numbers}{ending}"
