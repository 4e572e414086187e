"""Items that are read and made ready when a batch asks for them, in the place of a tensor of all of them."""

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float32, Floats, Ints
from pdcc.data.scaling import Scaler, check_scaled
from pdcc.rows import FeatureRows

ROWS_AT_ONCE = 8192


class RowSource:
    """What of a tensor (N, ...) training needs: its shape, its device, and the rows that are asked for.

    read: from row numbers (n,), increasing and each once, to items (n, ...) in float32.

    Examples:
        >>> import numpy as np, torch
        >>> from pdcc.inference.rows import RowSource
        >>> kept = np.eye(3, dtype=np.float32)
        >>> x = RowSource(lambda rows: kept[rows], (3, 3), torch.device("cpu"))
        >>> x[torch.tensor([2, 0, 2])].argmax(1).tolist()
        [2, 0, 2]
    """

    dtype = torch.float32

    def __init__(self, read: Callable[[Ints], Float32], shape: tuple[int, ...], device: torch.device):
        self.read, self.device = read, device
        self.shape = torch.Size(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The items numbered ``rows``, in the order asked for."""
        if isinstance(rows, slice):
            return self._tensor(np.arange(len(self), dtype=np.int64)[rows])
        # What lies together in a file is read together, and what is asked for twice is read once.
        sorted_rows, where = torch.unique(rows.cpu(), return_inverse=True)
        return self._tensor(sorted_rows.numpy())[where.to(self.device)]

    def to(self, device: torch.device) -> "RowSource":
        """The same, handed out on another device."""
        return RowSource(self.read, tuple(self.shape), device)

    def split(self, size: int) -> Iterator[Tensor]:
        """All items, (at most ``size``, ...) at a time."""
        for begin in range(0, len(self), size):
            yield self[begin : begin + size]

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the bytes that a tensor of all items would have."""
        digest = hashlib.sha256()
        for part in self.split(ROWS_AT_ONCE):
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.digest()

    def _tensor(self, rows: Ints) -> Tensor:
        return onto(torch.as_tensor(self.read(rows)), self.device)


def onto(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device; from the host to a GPU by way of pinned memory, so that nobody waits for the copy."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


# Items (N, ...) as training takes them: in memory, or read as they are needed.
Items = Tensor | RowSource


def scaled_items(features: Floats | FeatureRows, scaler: Scaler, device: torch.device) -> Items:
    """Scaled features (N, ...): a tensor, or, where they are too large to be copied, what scales rows as they are read."""
    if not isinstance(features, FeatureRows):
        return torch.as_tensor(np.require(check_scaled(scaler(features)), requirements="W")).to(device)

    def read(rows: Ints) -> Float32:
        return check_scaled(scaler(features[rows]), rows)

    return RowSource(read, (len(features), *scaler.scaled(features.shape[1:])), device)
