# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh vllm_interface: our connector against the interfaces of vLLM 0.33, whose package for GPUs
imports on a machine without one and serves nothing there."""

import importlib.metadata
import inspect

import pytest
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from splitzip_kv.integrations.vllm import Metadata, PromMetrics, SplitZipConnector, Stats

OURS = {
    SplitZipConnector: KVConnectorBase_V1,
    Metadata: KVConnectorMetadata,
    Stats: KVConnectorStats,
    PromMetrics: KVConnectorPromMetrics,
}
ABSTRACT = {
    "start_load_kv",
    "wait_for_layer_load",
    "save_kv_layer",
    "wait_for_save",
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "build_connector_meta",
}


def test_version():
    assert importlib.metadata.version("vllm").startswith("0.33.")


def test_nothing_abstract_is_missing():
    assert KVConnectorBase_V1.__abstractmethods__ == ABSTRACT
    for ours, theirs in OURS.items():
        assert issubclass(ours, theirs) and not inspect.isabstract(ours)


def test_vllm_finds_it_as_the_documentation_says():
    config = KVTransferConfig(
        kv_connector="SplitZipConnector",
        kv_connector_module_path="splitzip_kv.integrations.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"store": "file:///nowhere"},
    )
    assert KVConnectorFactory.get_connector_class(config) is SplitZipConnector


def methods():
    for ours, theirs in OURS.items():
        for name in vars(ours):
            if not name.startswith("_") and hasattr(theirs, name) and callable(getattr(ours, name)):
                yield pytest.param(getattr(ours, name), getattr(theirs, name), id=f"{ours.__name__}.{name}")


@pytest.mark.parametrize(("ours", "theirs"), methods())
def test_a_call_of_theirs_is_one_of_ours(ours, theirs):
    """Whatever vLLM gives, by place or by name, its method takes; ours has to take it, too."""
    mine, wanted = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
    places = [name for name, one in mine.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    for number, (name, one) in enumerate(wanted.items()):
        if one.kind is one.POSITIONAL_OR_KEYWORD:
            assert places[number] == name
        elif one.kind is one.VAR_KEYWORD:
            assert any(mine_one.kind is one.VAR_KEYWORD for mine_one in mine.values())
    required = {name for name, one in mine.items() if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD}
    assert required <= set(wanted)


def test_the_methods_that_it_overrides_are_still_theirs():
    """A method that vLLM has renamed would be one of ours that nobody calls."""
    known = set(dir(KVConnectorBase_V1))
    assert {name for name in vars(SplitZipConnector) if not name.startswith("_")} <= known
