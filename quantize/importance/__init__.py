"""How much the error of each column of each weight matrix matters to the model: collected, kept, exchanged."""

from quantize.importance.file import read_matrix, write_matrix
from quantize.importance.matrix import Entry, ImportanceMatrix, MatrixColumns

__all__ = ["Entry", "ImportanceMatrix", "MatrixColumns", "read_matrix", "write_matrix"]
