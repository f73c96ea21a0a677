import pytest

from fne.core.errors import InputError
from fne.experiments.study_folds import divide
from fne.store.catalog import Captioned

SPLITS = ["train"] * 14 + ["val"] * 6 + ["test"] * 5
IMAGES = [Captioned(f"r{number:02d}", split, ("a", "b"), ()) for number, split in enumerate(SPLITS)]


def ids(images, split):
    return {image.id for image in images if image.split == split}


def test_every_image_of_train_and_val_is_tested_once_and_test_images_are_withheld():
    folds = [divide(IMAGES, 4, fold, 0.2, seed=0) for fold in range(4)]
    tested = [ids(fold, "test") for fold in folds]
    assert [len(each) for each in tested] == [5, 5, 5, 5]
    assert set.union(*tested) == {image.id for image in IMAGES if image.split != "test"}
    for fold in folds:
        assert len(fold) == 20
        assert (len(ids(fold, "train")), len(ids(fold, "val"))) == (12, 3)


def test_the_division_depends_on_the_ids_and_the_seed_alone():
    assert divide(IMAGES, 4, 1, 0.2, seed=0) == divide(IMAGES, 4, 1, 0.2, seed=0)
    shuffled = divide(IMAGES[::-1], 4, 1, 0.2, seed=0)
    assert ids(shuffled, "test") == ids(divide(IMAGES, 4, 1, 0.2, seed=0), "test")
    assert ids(divide(IMAGES, 4, 1, 0.2, seed=1), "test") != ids(divide(IMAGES, 4, 1, 0.2, seed=0), "test")


def test_without_folds_the_splits_of_the_catalog_stay():
    assert divide(IMAGES, 0, 0, 0.2, seed=0) == IMAGES


def test_official_splits_need_test_images():
    with pytest.raises(InputError) as caught:
        divide(IMAGES[:20], 0, 0, 0.2, seed=0)
    assert caught.value.message == "the catalog has no test images; leave out --official to use folds"


def test_too_few_images_for_the_folds_are_refused():
    with pytest.raises(InputError) as caught:
        divide(IMAGES[:8], 3, 0, 0.2, seed=0)
    assert caught.value.message == "8 images of train and val cannot be divided: 3 folds need 9"


def test_a_pilot_uses_the_first_images_of_the_same_division():
    whole = [ids(divide(IMAGES, 4, fold, 0.2, seed=0), "test") for fold in range(4)]
    pilot = [divide(IMAGES, 4, fold, 0.2, seed=0, images=12) for fold in range(4)]
    assert [len(fold) for fold in pilot] == [12] * 4
    for fold, all_of_it in zip(pilot, whole, strict=True):
        assert len(ids(fold, "test")) == 3
        assert ids(fold, "test") < all_of_it
