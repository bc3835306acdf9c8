"""Llama: a decoder whose layers run as one loop, and whose tokens do too.

The parameters are stacked: one `DecoderBlock` whose every array has a leading axis of
layers.  `onescan.layers.scan_layers` runs through them, and inside each array has lost
that axis.  So the program is compiled for one block, however many there are.

Read it in this order:

| file | what |
|---|---|
| `config.py` | the sizes of a model, by name or from a `config.json` |
| `params.py` | the parameters as NamedTuples, their shapes, random ones |
| `rotary.py` | positions as angles |
| `model.py` | one decoder block, and the whole decoder as a loop over blocks |
| `cache.py` | keys and values of the tokens so far |
| `sampling.py` | the next token from its logits |
| `generate.py` | prompts in, tokens out: the decode loop |
| `training.py` | the loss, with a remat policy |
| `tensors.py` | the safetensors format |
| `checkpoint.py` | Hugging Face checkpoints, straight into the stacked layout |
| `__main__.py` | the command line: `python -m examples.llama --help` |
"""
