"""The transcode stage: sources become the finished file.

`probe` reads what a file holds, `plan` decides, `command` spells and `verify` judges, all of them
pure. `children` runs the programs, `transcode` puts these together, `worker` is the handler.
"""
