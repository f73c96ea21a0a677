"""Show the catalog and the vectors of its images in FiftyOne: `python -m examples.fiftyone_bridge`.

`pip install fiftyone` brings FiftyOne. Run this in the folder of a project in which `dvc repro` has finished.
"""

import fiftyone
import fiftyone.brain

import fne

catalog, vectors = fne.load_catalog(), fne.open_store("vectors/images")
ids = [each for each in catalog.ids() if catalog.file(each)]
samples = [
    fiftyone.Sample(
        filepath=str(catalog.file(each).absolute()),
        tags=[catalog.split[each]],
        image=each,
        captions=list(catalog.captions[each]),
        labels=fiftyone.Classifications(
            classifications=[fiftyone.Classification(label=tag) for tag in catalog.tags[each]]
        ),
    )
    for each in ids
]
dataset = fiftyone.Dataset("fne", overwrite=True)
dataset.add_samples(samples)
fiftyone.brain.compute_similarity(dataset, embeddings=vectors.read(ids), brain_key="fne")
fiftyone.launch_app(dataset).wait()
