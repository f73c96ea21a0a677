"""What a full-network embedding keeps of each layer: the shares of -1, 0 and +1."""

from dataclasses import dataclass

from fne.store.lineage import Lineage


@dataclass(frozen=True)
class Share:
    """One layer; all in percent of its values, `dead` of its features: those that never vary."""

    layer: str
    minus: float
    zero: float
    plus: float
    dead: float


def layer_shares(lineage: Lineage) -> list[Share]:
    """Return the shares that the embeddings noted when they were made, from the first layer to the last.

    Only a ternary embedding has them; for any other kind the list is empty.
    """
    shares = lineage.get("embeddings", {}).get("settings", {}).get("shares", {})
    return [
        Share(layer, **{key: 100 * value for key, value in each.items()}) for layer, each in shares.items()
    ]
