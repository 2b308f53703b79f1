"""A GGUF file turned into an ordinary model folder: float32 safetensors, config, tokenizer.

Run as a program (`python -m strop.engines.dequantise FOLDER FILE OUT`) it keeps the memory that this
takes, about 1.2 GB for 135 million parameters, out of the process that goes on to train.
"""

import sys
from pathlib import Path


def dequantise(folder: Path, file: str, out: Path) -> None:
    """Write the model in `folder / file` to the folder `out` as float32. Reads nothing from a network.

    Raises what transformers and safetensors raise: OSError, ValueError, SafetensorError.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, local_files_only=True
    )
    # The weights are plain float32 now; without this, saving writes a folder that claims to be quantised.
    model.hf_quantizer = None
    model.is_quantized = False
    model.quantization_method = None
    del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    dequantise(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
