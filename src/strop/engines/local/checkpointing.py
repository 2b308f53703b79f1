"""Gradient checkpointing: of each layer only the input is kept, and the layer is computed again backwards.

A third more time for activations of one layer instead of all. The numbers stay the same bit for bit.
"""

from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from strop.errors import ModelError


def keep_inputs_only(model: Any) -> None:
    """Compute the layers of a transformers causal LM again in the backward pass.

    Raises ModelError where the model has no such layers. The layers' own flag says training from then on,
    without which transformers does nothing; what is in them stays in eval mode, dropout too.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError("checkpointing: this model's layers cannot be computed again; leave it off")
    for layer in layers:
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = partial(
            checkpoint, use_reentrant=False, preserve_rng_state=False
        )
        layer.training = True
