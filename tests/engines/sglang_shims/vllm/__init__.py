# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM, of which SGLang on a processor wants one function."""
