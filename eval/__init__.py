# SPDX-License-Identifier: Apache-2.0
"""The paper's evaluation with this library, and what the paper lacks: `python -m eval`, docs/evaluation.md."""
