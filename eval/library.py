# SPDX-License-Identifier: Apache-2.0
"""splitzip by its public interfaces: the Python package and the command."""

import json
import subprocess
import sys

import numpy as np

import splitzip_kv as sz

AXES = "token,head,dim"


def calibrate(tensors, one_base=False):
    calibration = sz.Calibration()
    for name, values in tensors.items():
        calibration.add(name, sz.Layout(values, AXES), base_count=1 if one_base else None)
    return calibration.finish()


def described(tensors, codebooks, mode, unit_tokens=None, heads=True):
    """Layouts and tensors of one frame; without `heads` all heads of a token are one range."""
    layouts, entries = [], []
    for name, values in tensors.items():
        flat = values if heads else values.reshape(values.shape[0], -1)
        layouts.append(sz.Layout(flat, AXES if heads else "token,channel"))
        codebook = None if mode == sz.Mode.RAW else codebooks.find(name)
        entries.append(layouts[-1].tensor(codebook, mode=mode, tokens_per_unit=unit_tokens))
    return entries, layouts


def frame_bytes(tensors, codebooks, mode=sz.Mode.TIERED, unit_tokens=None, heads=False):
    """Of one frame with all tensors, which is decoded and compared before its size is believed."""
    entries, layouts = described(tensors, codebooks, mode, unit_tokens, heads)
    frame = sz.encode(entries, layouts)
    outputs = {name: np.empty_like(values) for name, values in tensors.items()}
    sz.Frame(frame).decode(entries, described(outputs, codebooks, mode, unit_tokens, heads)[1])
    for name, values in tensors.items():
        if values.tobytes() != outputs[name].tobytes():
            sys.exit(f"{name}: the decoded values differ")
    return len(frame)


def ratio(tensors, codebooks, mode=sz.Mode.TIERED, unit_tokens=None, heads=False):
    raw = sum(values.nbytes for values in tensors.values())
    return raw / frame_bytes(tensors, codebooks, mode, unit_tokens, heads)


class Command:
    """The program `splitzip`."""

    def __init__(self, path):
        self.path = path

    def run(self, *arguments, stdin=None):
        try:
            done = subprocess.run([self.path, *map(str, arguments)], input=stdin, capture_output=True, text=True)
        except OSError as error:
            sys.exit(f"{self.path}: {error.strerror}; name the command with --command")
        if done.returncode != 0:
            sys.exit(f"splitzip {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def json(self, *arguments, stdin=None):
        return json.loads(self.run(*arguments, "--json", stdin=stdin))
