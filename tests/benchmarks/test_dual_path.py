from benchmarks.dual_path import OBJECTIVES, arms, train_section


def test_every_arm_trains_with_the_same_number_of_epochs_and_its_own_terms():
    found = {name: train_section(arm.changes, seed=1) for name, arm in arms(6000, 16, 0.001).items()}
    assert {sum(values["epochs"] for values in each.phase_values()) for each in found.values()} == {16}
    assert {each.batch for each in found.values()} == {64}
    titles = {name: each.loss_titles() for name, each in found.items()}
    for title in ("mean of words", "text CNN"):
        assert [titles[f"{title}: {name}"] for name in OBJECTIVES] == [
            ["sum_hinge"],
            ["instance"],
            ["sum_hinge + instance"],
            ["instance", "sum_hinge"],
        ]


def test_classes_are_the_fractions_of_the_paper():
    found = {name: arm for name, arm in arms(6000, 16, 0.001).items() if arm.part == "classes"}
    assert list(found) == ["6,000 classes, one per image", "159 K-means classes", "530 K-means classes"]
    classes = [train_section(arm.changes, seed=0).instance.classes for arm in found.values()]
    assert classes == [0, 159, 530]
