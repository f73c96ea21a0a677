import io
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

from examples.glove_from_wheel import INDEX, VECTORS, main
from fne.text.word_vector_files import read_vector_file

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed; only this example needs it")


def test_words_and_vectors_of_a_wheel_can_be_read_as_word_vectors(tmp_path):
    import pyarrow.parquet

    index, vectors = io.BytesIO(), io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"index": ["dog", "cat"]}), index)
    np.save(vectors, np.asfortranarray([[1, 2, 3], [4, 5, 6]], dtype=np.float32))
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr(f"package/data/{INDEX}", index.getvalue())
        wheel.writestr(f"package/data/{VECTORS}", vectors.getvalue())
    result = CliRunner().invoke(main, [str(tmp_path / "x.whl"), str(tmp_path / "x.npz")])
    assert result.output == f"{tmp_path}/x.npz: 2 words, 3 dimensions\n"
    assert read_vector_file(tmp_path / "x.npz", ["cat"]).values["cat"].tolist() == [4, 5, 6]
