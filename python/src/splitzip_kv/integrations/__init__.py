# SPDX-License-Identifier: Apache-2.0
"""splitzip inside of inference engines. Each module needs its engine, and nothing here imports them."""
