import pytest
import torch

from fne.core.processes import ALONE
from fne.matching import encoding
from fne.matching.encoding import encode_captions, encode_images, vector_shards
from fne.matching.model import Shape, new_matcher
from tests.groups import in_processes


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("block", [1, 3, 256])
def test_processes_that_share_blocks_give_the_bits_of_one(pairs, monkeypatch, processes, block):
    monkeypatch.setattr(encoding, "BLOCK", block)
    matcher = new_matcher(Shape("linear", "gru", "cosine", False, 16, 12, 5, 8), seed=0)
    image_ids = [record.id for record in pairs.captioned]
    caption_ids = [each for record in pairs.captioned for each in record.caption_ids]

    def work(group):
        images = torch.cat(list(encode_images(matcher, pairs, image_ids, group)))
        captions = torch.cat(list(encode_captions(matcher, pairs, caption_ids, group)))
        return images.numpy(), captions.numpy()

    expected = work(ALONE)
    assert [len(each) for each in expected] == [10, 19]
    for found in in_processes(processes, work):
        assert all((one == other).all() for one, other in zip(found, expected, strict=True))


def test_shards_hold_the_vectors_of_their_ids():
    ids = [f"{number}.png" for number in range(50)]
    rows = {each: torch.tensor([[float(each[:-4])]]) for each in ids}
    shards = list(vector_shards(ids, 1, lambda chosen: [rows[each] for each in chosen]))
    assert sorted(each for _, chosen, _ in shards for each in chosen) == sorted(ids)
    for _, chosen, vectors in shards:
        assert vectors.ravel().tolist() == [float(each[:-4]) for each in chosen]
