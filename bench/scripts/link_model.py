# SPDX-License-Identifier: Apache-2.0
"""Figures from the rows of two_gpu_bench: the best of each kind, what they mean for requests, and what the planner's model says of them."""

OUTPUT_TOKENS = 16  # of a request, in throughput


def median(row):
    return row["seconds"][1]


def gbps(row):
    return row["bytes"] / median(row) / 1e9


def best(rows):
    rows = [row for row in rows if row is not None and "failure" not in row]
    return min(rows, key=median) if rows else None


class Cases:
    RAW = {"NVLink": ("raw peer copy", "raw pages by a kernel"), "host": ("raw over the host",)}
    NAMES = {
        "into the peer": "encode into the peer",
        "peer copy": "encode, peer copy, decode",
        "over the host": "encode, over the host, decode",
    }

    def __init__(self, result, times=None):
        self.rows = result["rows"]
        measured = [row for row in self.rows if row["group"] == "cases" and "failure" not in row]
        self.shapes = list(dict.fromkeys(row["shape"] for row in measured))
        self._cases = {}
        for row in measured:
            self._cases.setdefault((row["shape"], row["batch"], row["tokens"]), []).append(row)
        self.times = {}
        for row in (times or {}).get("times", []):
            if "failure" not in row:
                self.times[row["model"], row["batch"], row["tokens"]] = row
        self.suffix = (times or {}).get("suffix")

    def link_of(self, row):
        return "host" if "host" in row["way"] else "NVLink"

    def short(self, row):
        return next(name for name, way in self.NAMES.items() if way == row["way"]) + f", {row['slice_bytes'] >> 20} MiB"

    def sizes(self, shape):
        return sorted((batch, tokens) for name, batch, tokens in self._cases if name == shape)

    def bytes_of(self, *case):
        return self._cases[case][0]["bytes"]

    def ratio(self, shape):
        coded = [row for case, rows in self._cases.items() if case[0] == shape for row in rows if row.get("mode") == "tiered"]
        return coded[-1]["bytes"] / coded[-1]["wire_bytes"] if coded else None

    def raw(self, link, *case):
        return best([row for row in self._cases.get(case, []) if row["way"] in self.RAW[link]])

    def coded(self, link, *case):
        return [row for row in self._cases.get(case, []) if "mode" in row and self.link_of(row) == link]

    def ours(self, link, *case):
        return best(self.coded(link, *case))

    def gain(self, link, *case):
        raw, ours = self.raw(link, *case), self.ours(link, *case)
        return median(raw) / median(ours) if raw and ours else None

    def ttft(self, link, prefill, *case):
        """Seconds raw and ours: `prefill` is "prefill_seconds", or "suffix_seconds" with a prefix cache. None where one is not measured."""
        raw, ours, times = self.raw(link, *case), self.ours(link, *case), self.times.get(case)
        if not (raw and ours and times):
            return None
        rest = times[prefill] + times["step_seconds"]
        return rest + median(raw), rest + median(ours)

    def ttft_gain(self, link, *case):
        found = self.ttft(link, "suffix_seconds", *case)
        return found[0] / found[1] if found else None

    def throughput(self, link, *case):
        """Requests a second, (raw, ours) where a batch goes through all stages before the next one, and (raw, ours) where prefill, link and
        decoding each work on a batch of their own."""
        raw, ours, times = self.raw(link, *case), self.ours(link, *case), self.times.get(case)
        if not (raw and ours and times):
            return None
        prefill, decode = times["suffix_seconds"], OUTPUT_TOKENS * times["step_seconds"]
        transfers = (median(raw), median(ours))
        in_turn = tuple(case[1] / (prefill + seconds + decode) for seconds in transfers)
        return in_turn, tuple(case[1] / max(prefill, seconds, decode) for seconds in transfers)

    def throughput_gain(self, link, *case):
        found = self.throughput(link, *case)
        return found[0][1] / found[0][0] if found else None

    def side_by_side_gain(self, link, *case):
        found = self.throughput(link, *case)
        return found[1][1] / found[1][0] if found else None


def fit(points):
    """Seconds of a call and bytes/s: the speed between the largest two sizes, and what the smallest one takes longer."""
    points = sorted(points)
    (small, small_seconds), (large, large_seconds) = points[-2:]
    rate = (large - small) / max(large_seconds - small_seconds, 1e-12)
    first, first_seconds = points[0]
    return max(0.0, first_seconds - first / rate), rate


class Planner:
    """The model of splitzip_plan.h with what was measured: predictions for the coded ways, and the choice between them and raw."""

    LEAST_GAIN = 0.02

    def __init__(self, cases):
        self.cases = cases
        links = {"NVLink": "raw peer copy", "host": "raw over the host"}
        self.links, self.codecs = {}, {}
        for link, way in links.items():
            points = {}
            for row in cases.rows:
                if row["group"] == "link" and row["way"] == way and "failure" not in row:
                    points[row["bytes"]] = min(points.get(row["bytes"], 1e9), median(row))
            if len(points) > 2:
                self.links[link] = fit(points.items())
        for way in ("encode", "decode"):
            points = [
                (row["bytes"], median(row))
                for row in cases.rows
                if row["group"] == "codec" and row["way"] == way and row["mode"] == "tiered" and not row["max_sms"] and "failure" not in row
            ]
            if len(points) > 2:
                self.codecs[way] = fit(points)

    def predict(self, row):
        """Seconds of this coded row, or None without measurements of its link and of the codec."""
        link = self.links.get(self.cases.link_of(row))
        if link is None or len(self.codecs) < 2:
            return None
        slices = -(-row["bytes"] // row["slice_bytes"])
        size = row["bytes"] / slices
        encode, decode = (seconds + size / rate for seconds, rate in (self.codecs["encode"], self.codecs["decode"]))
        write = link[0] + size * row["wire_bytes"] / row["bytes"] / link[1]
        # Over the host a slice goes down and up, and the two overlap with those of other slices: once more the time of a write.
        hops = 2 if self.cases.link_of(row) == "host" else 1
        return encode + hops * write + decode + (slices - 1) * max(encode, write, decode)

    def choose(self, link, *case):
        """(what the model takes of the measured ways, predicted seconds, raw row), or None. The encoder that writes into the peer is not in the model."""
        raw = self.cases.raw(link, *case)
        rows = [row for row in self.cases.coded(link, *case) if "into the peer" not in row["way"]]
        predicted = [(self.predict(row), row) for row in rows]
        if raw is None or not predicted or any(seconds is None for seconds, _ in predicted):
            return None
        seconds, row = min(predicted, key=lambda pair: pair[0])
        call, rate = self.links[link]
        raw_seconds = call + raw["bytes"] / rate
        return (raw, raw_seconds, raw) if seconds * (1 + self.LEAST_GAIN) > raw_seconds else (row, seconds, raw)
