# SPDX-License-Identifier: Apache-2.0
"""A KV cache moved from a prefill process to a decode process: `python -m splitzip_kv.transfer.demo --help`."""
