import itertools

import pytest
import torch

from fne.core.distributed_layers import Step
from fne.core.processes import ALONE
from fne.matching import encode as encoding
from fne.matching.encode import embed_batch, encode_captions, encode_images, read_batch, vector_shards
from fne.matching.hard_negatives import MINERS, LossChoices, mined_loss
from fne.matching.model import Shape, new_matcher
from fne.matching.similarities import SIMILARITIES
from tests.support.pairs import Doubled, draw_batches
from tests.support.processes import in_processes
from tests.support.variants import settings_of


def gradients(pairs, shape, loss, batch, processes):
    matcher = new_matcher(shape, seed=0).double()
    part = processes.partition(len(batch))
    step = Step(torch.Generator().manual_seed(5), len(batch), part, processes)
    rows = read_batch(matcher, Doubled(pairs).source, batch.part(part))
    vectors = embed_batch(matcher, rows, pairs.captions(batch.caption_ids[part]), step)
    scores = matcher.similarity(vectors.images, vectors.captions)
    total = mined_loss(loss, LossChoices(k=2), scores, batch.positives(), torch.arange(len(scores)), 0.2)
    total.backward()
    processes.add_gradients(matcher.parameters())
    statistics = {name: each.numpy() for name, each in matcher.named_buffers()}
    return total.item(), {name: each.grad.numpy() for name, each in matcher.named_parameters()} | statistics


@pytest.mark.parametrize(
    ("similarity", "loss", "encoder", "processes", "captions"),
    [
        *[(*both, "gru", 2, "one") for both in itertools.product(SIMILARITIES, MINERS)],
        *[("cosine", "sum_hinge", encoder, 2, "one") for encoder in ("bigru", "bow", "lstm")],
        ("order", "top_k_hinge", "gru", 3, "all"),
        ("cosine", "max_hinge", "gru", 6, "one"),  # a batch of 4 in 6 processes
        *[("cosine", "sum_hinge", encoder, 2, "all") for encoder in ("bow_mlp", "bow_mlp_bn_first")],
        ("cosine", "top_k_hinge", "bow_mlp", 6, "one"),
        ("cosine", "sum_hinge", "text_cnn", 2, "all"),
        ("cosine", "sum_hinge", "text_cnn", 6, "one"),
    ],
)
def test_loss_and_gradients_are_those_of_one_process(pairs, similarity, loss, encoder, processes, captions):
    heads = {"bow_mlp": "mlp", "bow_mlp_bn_first": "mlp_bn_first", "text_cnn": "dual_path"}
    head = heads.get(encoder, "linear_bias")
    found = [settings_of(name) for name in (head, encoder)]
    own = [each.model_dump() if each else {} for each in found]
    shape = Shape(head, encoder, similarity, similarity != "cosine", 16, 12, 5, 8, *own)
    batch = draw_batches(pairs, 0, 0, 4, captions)[0]
    expected_loss, expected = gradients(pairs, shape, loss, batch, ALONE)
    assert expected_loss > 0
    found = in_processes(processes, lambda group: gradients(pairs, shape, loss, batch, group))
    for total, summed in found:
        assert total == pytest.approx(expected_loss, rel=1e-10)
        for name, value in expected.items():
            # The gradient of a bias before batch normalization is zero, up to rounding.
            tolerance = 1e-10 * max(abs(value).max(), 10.0 if encoder == "text_cnn" else 1e-2)
            assert summed[name] == pytest.approx(value, rel=1e-10, abs=tolerance)
    for _, summed in found[1:]:
        assert all((summed[name] == found[0][1][name]).all() for name in expected)


def test_half_precision_vectors_are_compared_in_single_precision(pairs):
    matcher = new_matcher(Shape("linear", "bow", "cosine", False, 16, 12, 5, 8), seed=0)
    rows, captions = pairs.source.read(["3.png"] * 2), (torch.ones(2, 1).long(), torch.ones(2).long())
    found = embed_batch(matcher, rows, captions, Step(torch.Generator(), 2, slice(0, 2)), torch.bfloat16)
    vectors = (found.images, found.captions, found.own_images, found.own_captions)
    assert [each.dtype for each in vectors] == [torch.float32] * 4


@pytest.mark.parametrize(("processes", "block"), [(2, 256), (2, 3), (3, 1)])
def test_processes_that_share_blocks_give_the_bits_of_one(pairs, monkeypatch, processes, block):
    monkeypatch.setattr(encoding, "BLOCK", block)
    shape = Shape("linear", "gru", "cosine", False, 16, 12, 5, 8, text_encoder_settings={"initial": "torch"})
    matcher = new_matcher(shape, seed=0)
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
