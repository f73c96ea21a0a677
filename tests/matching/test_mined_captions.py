import copy

import pytest
import torch
from torch.nn.functional import normalize

from fne.core.distributed_layers import Step
from fne.matching.mined_captions import AnchorDraw, rank_mined, with_mined_captions
from fne.matching.settings import TextCnn as TextCnnSettings
from fne.matching.text_cnn import TextCnn
from tests.support.finetuning import captioned, small_task


def step():
    return Step(torch.Generator().manual_seed(4), 6, slice(0, 6))


def test_the_ranking_loss_is_that_of_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        scores = torch.randn(8, 8, generator=generator, dtype=torch.float64)
        total = 0.0
        for i in range(4):  # as the published code: anchors, mined captions, other images
            total += max(0.0, 0.5 - float(scores[i, i]) + float(scores[i, 4 + i]))
            total += max(0.0, 0.5 - float(scores[i, i]) + float(scores[4 + i, i]))
        assert rank_mined(scores, 0.5).item() == pytest.approx(total / 8, abs=1e-12)


def test_the_nearest_candidate_is_mined_in_test_mode(tmp_path):
    task = small_task(tmp_path)
    task.trained.train()
    statistics = copy.deepcopy(task.matcher.state_dict())
    batch = task.batches(0)[0]
    rows = task.source.read(batch.image_ids, batch.views).detach()
    found = with_mined_captions(batch, rows, task.matcher, task.data.training, True, step())
    assert task.matcher.training
    assert all(torch.equal(value, statistics[name]) for name, value in task.matcher.state_dict().items())
    task.matcher.eval()
    mined = found.caption_ids[3:]
    for anchor, nearest in zip(rows, mined, strict=False):
        image = normalize(task.matcher.image_head(anchor[None]).relu(), dim=1)
        scores = {}
        for each in batch.candidates:
            encoded = task.matcher.text_encoder(*task.data.training.captions([each]))
            scores[each] = (image @ normalize(encoded.relu(), dim=1).T).item()
        assert scores[nearest] == pytest.approx(max(scores.values()), abs=1e-6)
    assert len(mined) == len(batch.caption_ids) == 3


def test_a_candidate_is_read_from_one_start_position_which_the_step_draws(tmp_path):
    task, read = small_task(tmp_path), []
    encoder = task.matcher.text_encoder = TextCnn(
        task.matcher.text_encoder.words, 5, TextCnnSettings(width=1 / 64, positions=8)
    )
    plain = encoder.read

    def reading(words, lengths, starts, step):
        read.append((lengths, starts))
        return plain(words, lengths, starts, step)

    encoder.read = reading
    batch = task.batches(0)[0]
    rows = task.source.read(batch.image_ids, batch.views).detach()
    for _ in range(2):
        with_mined_captions(batch, rows, task.matcher, task.data.training, False, step())
    (lengths, starts), (_, again) = read
    drawn = torch.rand(len(batch.candidates), generator=torch.Generator().manual_seed(4))
    assert starts.tolist() == (drawn * (9 - lengths)).long().tolist() == again.tolist()


def test_a_batch_has_anchors_their_captions_and_captions_of_others():
    draw, records = AnchorDraw(captioned(), seed=0, batch=6, candidates=5), captioned()
    owners = {each: record.id for record in records for each in record.caption_ids}
    batches = draw.batches(3)
    assert [len(batch) for batch in batches] == draw.sizes() == [6, 6]
    assert sorted(each for batch in batches for each in batch.image_ids) == sorted(
        each.id for each in records
    )
    for batch in batches:
        anchors = batch.image_ids[:3]
        assert [owners[each] for each in batch.caption_ids] == anchors
        assert len(set(batch.candidates)) == 5
        assert not {owners[each] for each in batch.candidates} & set(anchors)
        assert batch.views == [3] * 6
    assert batches == draw.batches(3)
    assert batches != draw.batches(4)


def test_fewer_images_and_captions_than_asked_for_are_all_that_there_are():
    [batch] = AnchorDraw(captioned(), seed=0, batch=32, candidates=999).batches(0)
    assert (len(batch), len(batch.caption_ids)) == (12, 6)
    assert len(batch.candidates) < 24
