"""Reads a trace with Perfetto's own message classes, checks its rules, and prints what is in it as JSON.

Usage: check.py TRACE. Rules: descriptions come before events of their tracks, slices of a track nest and end in order, arrows that
end have begun, and counters have values.
"""

import json
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


def main(path):
    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    tracks, open_slices, last, flows = {}, {}, {}, set()
    slices, counters, arrows = [], {}, 0
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1, packet
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            assert d.uuid not in tracks, d
            assert d.HasField("process") or d.parent_uuid in tracks, d
            tracks[d.uuid] = d.process.process_name or d.name
            continue
        event, at = packet.track_event, packet.timestamp
        track = tracks[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            assert event.HasField("counter_value"), event
            counters.setdefault(track, []).append(event.counter_value)
            continue
        assert at >= last.get(track, 0), (track, at, last.get(track))
        last[track] = at
        stack = open_slices.setdefault(track, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            flows.update(event.flow_ids)
            arrows += len(event.terminating_flow_ids)
            assert all(f in flows for f in event.terminating_flow_ids), event
            notes = {}
            for a in event.debug_annotations:
                notes[a.name] = getattr(a, a.WhichOneof("value"))
            stack.append({"track": track, "name": event.name, "begin": at, "depth": len(stack), "notes": notes})
            slices.append(stack[-1])
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END and stack, event
            stack.pop()["end"] = at
    assert not any(open_slices.values()), open_slices
    print(json.dumps({"tracks": list(tracks.values()), "slices": slices, "counters": counters, "arrows": arrows}))


main(sys.argv[1])
