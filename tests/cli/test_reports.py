# SPDX-License-Identifier: Apache-2.0
"""inspect, test, bench and plan: their tables, and the JSON that docs/command.md describes."""

import json

import pytest

import kv
from conftest import message, run

TENSOR = {"name": str, "dtype": str, "shape": list, "original_bytes": int, "stored_bytes": int, "ratio": float, "mode": str, "frames": int}
FRAME = {
    "number": int, "file_offset": int, "frame_bytes": int, "original_offset": int, "original_bytes": int, "ratio": float, "tensor": str,
    "order": str, "type": str, "mode": str, "codebook": (str, type(None)), "tensor_key": str, "first_block": int, "tokens": int,
    "tokens_per_unit": int, "channels": int, "first_channel": int, "ranges": int, "slot_words": int, "tiles": int, "spill_bytes": int,
    "chunks": dict,
}  # fmt: skip
CODEBOOK = {
    "name": str, "hash": str, "type": str, "base_count": int, "ranks": list, "fixed4_slot_words": int, "tiered_slot_words": int,
    "sample_values": int, "top8_coverage": float, "top16_coverage": float, "entropy": float, "entropy_given_channel": float,
    "fixed4_bits": float, "tiered_bits": float, "fixed4_ratio": float, "tiered_ratio": float, "fixed4_escapes": float,
    "tiered_escapes": float,
}  # fmt: skip
FILE = {
    "file": str, "kind": str, "version": int, "original": str, "original_bytes": int, "file_bytes": int, "ratio": float,
    "codebook_set": (dict, type(None)), "tensors": list, "frames": list,
}  # fmt: skip


def check(value, schema):
    assert list(value) == list(schema)
    for key, kind in schema.items():
        assert isinstance(value[key], kind), (key, value[key])


@pytest.fixture
def mixed(work, samples):
    """Coded, constant, raw and foreign data, with the codebooks in the file."""
    tensors = kv.cache()
    tensors[1] = (*tensors[1][:3], bytes(len(tensors[1][3])))
    tensors.append(("positions", "I32", (40,), bytes(range(160))))
    tensors.append(("nothing", "BF16", (0, 4), b""))
    (work / "x.safetensors").write_bytes(kv.safetensors(tensors))
    run("compress", "--codebook", samples / "kv.szcb", "--embed-codebook", "x.safetensors", "-q")
    return work / "x.safetensors.szkv"


def test_inspect_json(mixed):
    facts = json.loads(run("inspect", "--json", mixed).stdout)
    check(facts, FILE)
    assert (facts["kind"], facts["version"], facts["original"]) == ("file", 0, "safetensors")
    assert facts["file_bytes"] == mixed.stat().st_size
    assert facts["original_bytes"] == mixed.with_suffix("").stat().st_size
    for tensor in facts["tensors"]:
        check(tensor, TENSOR)
    for frame in facts["frames"]:
        check(frame, FRAME)
        assert sum(frame["chunks"].values()) > 0 and list(frame["chunks"]) == ["coded", "raw", "constant"]
    for book in facts["codebook_set"]["codebooks"]:
        check(book, CODEBOOK)

    tensors = {tensor["name"]: tensor for tensor in facts["tensors"]}
    assert list(tensors) == ["(header)", "layers.0.k", "layers.0.v", "layers.1.k", "layers.1.v", "nothing", "positions"] or list(
        tensors
    ) == ["(header)", "layers.0.k", "layers.0.v", "layers.1.k", "layers.1.v", "positions", "nothing"]
    assert sum(tensor["original_bytes"] for tensor in facts["tensors"]) == facts["original_bytes"]
    assert sum(tensor["stored_bytes"] for tensor in facts["tensors"]) == sum(frame["frame_bytes"] for frame in facts["frames"])
    assert tensors["nothing"]["frames"] == 0 and tensors["nothing"]["mode"] == ""
    assert tensors["positions"]["dtype"] == "I32" and tensors["positions"]["mode"] == "raw"

    frames = {frame["tensor"]: frame for frame in facts["frames"]}
    assert frames["layers.0.k"]["codebook"] == facts["codebook_set"]["codebooks"][0]["hash"]
    assert frames["positions"]["codebook"] is None
    assert frames["layers.0.v"]["chunks"]["constant"] > 0
    assert frames["layers.0.k"]["chunks"]["coded"] > 0
    packed = mixed.read_bytes()
    for frame in facts["frames"]:
        assert packed[frame["file_offset"] : frame["file_offset"] + 4] == b"SZKF"


def test_inspect_for_people(mixed, samples):
    text = run("inspect", mixed).stdout.decode()
    assert "safetensors; " in text and "codebooks embedded" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines()[2:]}
    assert rows["layers.0.k"][1:3] == ["BF16", "3x40x32"] and "tiered" in rows["layers.0.k"]
    more = run("inspect", "-v", mixed).stdout.decode()
    assert more.startswith(text) and "constant" in more
    assert "4 codebooks" in run("inspect", samples / "kv.szcb").stdout.decode()
    both = run("inspect", "--json", mixed, samples / "kv.szcb").stdout.decode()
    assert [value["kind"] for value in several(both)] == ["file", "codebook_set"]


def several(text):
    decoder, values = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


def test_inspect_codebook_set(samples):
    facts = json.loads(run("inspect", "--json", samples / "kv.szcb").stdout)
    check(facts, {"file": str, "kind": str, "version": int, "file_bytes": int, "provenance": str, "codebooks": list})
    assert facts["kind"] == "codebook_set" and facts["file_bytes"] == (samples / "kv.szcb").stat().st_size
    for book in facts["codebooks"]:
        check(book, CODEBOOK)
        assert len(book["hash"]) == 16 and len(book["ranks"]) == 9


def test_inspect_does_not_let_names_steer_the_terminal(work):
    (work / "x").write_bytes(kv.safetensors([("a\x1b[2Jb", "U8", (3,), b"abc")]))
    run("compress", "--mode", "raw", "x")
    assert b"\x1b" not in run("inspect", "x.szkv").stdout
    assert json.loads(run("inspect", "--json", "x.szkv").stdout)["tensors"][1]["name"] == "a\x1b[2Jb"


def test_inspect_plain(work):
    (work / "x").write_bytes(bytes(1000))
    run("compress", "--mode", "raw", "--dtype", "u8", "x")
    facts = json.loads(run("inspect", "--json", "x.szkv").stdout)
    assert facts["original"] == "plain" and [tensor["name"] for tensor in facts["tensors"]] == ["(all)"]


def test_inspect_finds_damage_in_what_it_reads(mixed):
    packed = bytearray(mixed.read_bytes())
    packed[-1] ^= 1
    assert "trailer" in message("inspect", "-", input=bytes(packed))


def test_test_json(mixed):
    facts = json.loads(run("test", "--json", mixed).stdout)
    check(facts, {"input": str, "original_bytes": int, "file_bytes": int, "ratio": float, "frames": int})
    assert facts["frames"] == len(json.loads(run("inspect", "--json", mixed).stdout)["frames"])


def test_compress_and_decompress_json(work, samples):
    made = json.loads(run("compress", "--json", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", "x").stdout)
    check(made, {"input": str, "output": str, "original_bytes": int, "file_bytes": int, "ratio": float, "frames": int,
                 "coded_tensors": int, "raw_tensors": int})  # fmt: skip
    assert (made["output"], made["coded_tensors"], made["raw_tensors"]) == ("x", 4, 0)
    assert made["file_bytes"] == (work / "x").stat().st_size
    back = json.loads(run("decompress", "--json", "--codebook", samples / "kv.szcb", "x", "-o", "y").stdout)
    assert {key: back[key] for key in ("original_bytes", "file_bytes", "ratio", "frames")} == {
        key: made[key] for key in ("original_bytes", "file_bytes", "ratio", "frames")}  # fmt: skip


RATE = {"median": float, "lowest": float, "highest": float}


@pytest.mark.parametrize("options", [(), ("--unit-tokens", "16"), ("--rows",), ("-T", "2")])
def test_bench_json(samples, options):
    facts = json.loads(
        run("bench", "--json", "--repeats", 3, "--codebook", samples / "kv.szcb", samples / "in.safetensors", *options).stdout
    )
    check(facts, {"file": str, "raw_bytes": int, "entries": int, "unit_tokens": int, "ranges": str, "repeats": int, "threads": int,
                  "cpu_target": str, "device": str, "codebooks": str, "results": list})  # fmt: skip
    assert (facts["raw_bytes"], facts["entries"], facts["codebooks"]) == (4 * 3 * 40 * 32 * 2, 4, "given")
    assert [result["mode"] for result in facts["results"]] == ["tiered", "fixed4"]
    for result in facts["results"]:
        check(result, {"mode": str, "frame_bytes": int, "ratio": float, "encode_gb_per_s": dict, "decode_gb_per_s": dict,
                       "encode_call_seconds": float, "decode_call_seconds": float, "memcpy_gb_per_s": dict})  # fmt: skip
        assert 0 < result["encode_call_seconds"] < 1 and 0 < result["decode_call_seconds"] < 1
        assert result["ratio"] == pytest.approx(facts["raw_bytes"] / result["frame_bytes"])
        assert 1 < result["ratio"] < 1.6
        for kind in ("encode", "decode", "memcpy"):
            rate = result[f"{kind}_gb_per_s"]
            check(rate, RATE)
            assert 0 < rate["lowest"] <= rate["median"] <= rate["highest"]


def test_bench_for_people(samples):
    done = run("bench", "--repeats", 1, "--mode", "raw", "--mode", "tiered", samples / "in.safetensors")
    lines = done.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["raw", "tiered"]
    assert b"made of the data that are measured" in done.stderr


def test_bench_without_a_fitting_codebook(work, samples):
    (work / "x").write_bytes(kv.safetensors([("other", "BF16", (9, 16), kv.values((9, 16)))]))
    assert 'kv.szcb has no codebook for tensor "other"' in message("bench", "--codebook", samples / "kv.szcb", "x")
    (work / "x").write_bytes(kv.safetensors([("whole", "I64", (4,), bytes(32))]))
    assert "no tensor of a type that has a codec" in message("bench", "x")


@pytest.fixture(scope="module")
def speeds(samples):
    """What bench measures, with figures that do not depend on the machine."""
    facts = json.loads(run("bench", "--json", "--repeats", 1, "--codebook", samples / "kv.szcb", samples / "in.safetensors").stdout)
    for result, ratio, rate in zip(facts["results"], (1.5, 1.3), (3.0, 12.0)):
        result["ratio"] = ratio
        for kind in ("encode", "decode"):
            result[f"{kind}_gb_per_s"]["median"] = rate
            result[f"{kind}_call_seconds"] = 1e-5
    return json.dumps(facts).encode()


def plan(speeds, *options):
    return json.loads(run("plan", "--json", "--speeds", "-", *options, input=speeds).stdout)


def test_plan_json(speeds):
    facts = plan(speeds, "--link", "8Gbit/s", "--latency", "20us", "--bytes", "64MiB", "--bytes", "4KiB", "--bytes", "0")
    check(facts, {"link_bytes_per_second": float, "link_seconds": float, "plans": list})
    assert (facts["link_bytes_per_second"], facts["link_seconds"]) == (1e9, pytest.approx(2e-5))
    for row in facts["plans"]:
        check(row, {"raw_bytes": int, "way": str, "slice_bytes": int, "slices": int, "seconds": float, "plain_seconds": float,
                    "exposed_seconds": float, "bound": str, "reason": str})  # fmt: skip
        assert row["plain_seconds"] == pytest.approx(2e-5 + row["raw_bytes"] / 1e9)
        assert row["seconds"] <= row["plain_seconds"]
    large, small, nothing = facts["plans"]
    assert (large["way"], large["bound"]) == ("tiered", "link")
    assert large["plain_seconds"] / large["seconds"] > 1.4
    assert (small["way"], nothing["way"]) == ("plain", "plain")


def test_plan_follows_the_link(speeds):
    ways = [plan(speeds, "--link", link, "--bytes", "1GiB")["plans"][0]["way"] for link in ("1GB/s", "0.008TB/s", "1Tbit/s")]
    assert ways == ["tiered", "fixed4", "plain"]
    at_once = plan(speeds, "--link", "1Tbit/s", "--latency", "2us", "--bytes", "1MiB")["plans"][0]
    by_pages = plan(speeds, "--link", "1Tbit/s", "--latency", "2us", "--bytes", "1MiB", "--page-bytes", "1KiB")["plans"][0]
    assert (at_once["way"], by_pages["way"]) == ("plain", "fixed4")
    handed = [plan(speeds, "--link", "1GB/s", "--bytes", "1MiB", "--hand-over", cost)["plans"][0] for cost in ("0us", "1ms")]
    assert [row["way"] for row in handed] == ["tiered", "plain"]


def test_plan_for_people(work, speeds):
    (work / "speeds.json").write_bytes(speeds)
    lines = run("plan", "--speeds", "speeds.json", "--link", "10Gbit/s").stdout.decode().splitlines()
    assert lines[0].split() == ["bytes", "way", "slice", "plain", "predicted", "gain", "exposed", "bound", "by"]
    assert lines[1].startswith("64.0 KiB") and lines[10].startswith("16.0 GiB")
    assert any(line.startswith("tiered: faster than raw") for line in lines[11:])


@pytest.mark.parametrize("link", ["fast", "1", "GB/s", "1GB", "nanGB/s", "infGB/s", "1GB/s!"])
def test_plan_of_no_link(work, speeds, link):
    (work / "speeds.json").write_bytes(speeds)
    assert "--link" in message("plan", "--speeds", "speeds.json", "--link", link, code=2)


@pytest.mark.parametrize("link", ["0GB/s", "-1GB/s"])
def test_plan_of_a_link_that_cannot_be(work, speeds, link):
    (work / "speeds.json").write_bytes(speeds)
    assert "not a positive number" in message("plan", "--speeds", "speeds.json", f"--link={link}")


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"hello", b'{"results": [{}], "threads": 1}', b'{"results": 5}'])
def test_plan_of_no_speeds(text):
    assert "is not what splitzip bench --json writes" in message("plan", "--speeds", "-", "--link", "1GB/s", input=text)


@pytest.mark.parametrize("threads", [-1, 1e300, 2**32, 2.5, True])
def test_plan_of_an_impossible_number_of_threads(speeds, threads):
    text = json.dumps({**json.loads(speeds), "threads": threads}).encode()
    assert "not a number of threads" in message("plan", "--speeds", "-", "--link", "1GB/s", input=text)


def test_plan_of_impossible_speeds(speeds):
    facts = json.loads(speeds)
    facts["results"][1]["ratio"] = 0
    assert "positive" in message("plan", "--speeds", "-", "--link", "1GB/s", input=json.dumps(facts).encode())
    facts["results"][1]["mode"] = "best"
    assert 'unknown mode "best"' in message("plan", "--speeds", "-", "--link", "1GB/s", input=json.dumps(facts).encode())
