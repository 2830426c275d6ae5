//! Tracks, slices, counters and flows of a trace.

use super::proto::{
    Annotation, Counter, EventType, Packet, Process, TraceFile, TrackDescriptor, TrackEvent, Unit,
};
use crate::failure::Failure;
use prost::Message;
use std::path::Path;

/// The writer of all packets.
const SEQUENCE: u32 = 1;

/// Flag of the first packet: nothing before it counts.
const CLEARED: u32 = 1;

/// Events that a trace holds at most: viewers read no more.
const MAX_EVENTS: usize = 2_000_000;

/// The track of the process; others are numbered behind it.
const PROCESS: u64 = 1;

/// A track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(u64);

/// A name with a value, beside a slice.
pub enum Note {
    Text(&'static str, String),
    Count(&'static str, u64),
    Number(&'static str, f64),
}

impl Note {
    fn annotation(self) -> Annotation {
        let mut a = Annotation::default();
        match self {
            Note::Text(name, v) => (a.name, a.string_value) = (name.into(), Some(v)),
            Note::Count(name, v) => (a.name, a.uint_value) = (name.into(), Some(v)),
            Note::Number(name, v) => (a.name, a.double_value) = (name.into(), Some(v)),
        }
        a
    }
}

/// A slice that is to be written: where, from when to when, and what.
pub struct Slice {
    pub track: Track,
    /// Beginning and end in nanoseconds since the trace began.
    pub time: [f64; 2],
    pub name: String,
    pub notes: Vec<Note>,
    /// Arrows that begin here.
    pub from: Vec<u64>,
    /// Arrows that end here.
    pub to: Vec<u64>,
}

impl Slice {
    /// A slice without notes and arrows.
    pub fn new(track: Track, time: [f64; 2], name: impl Into<String>) -> Slice {
        Slice { track, time, name: name.into(), notes: Vec::new(), from: Vec::new(), to: Vec::new() }
    }
}

/// A trace.
#[derive(Debug)]
pub struct Trace {
    packets: Vec<Packet>,
    tracks: u64,
    left_out: usize,
}

impl Trace {
    /// A trace of a process of this name.
    pub fn new(process: &str) -> Trace {
        let mut trace = Trace { packets: Vec::new(), tracks: PROCESS, left_out: 0 };
        let pid = i32::try_from(std::process::id()).unwrap_or(1);
        trace.describe(TrackDescriptor {
            uuid: PROCESS,
            process: Some(Process { pid, process_name: process.to_owned() }),
            ..TrackDescriptor::default()
        });
        trace
    }

    fn describe(&mut self, d: TrackDescriptor) {
        let sequence_flags = self.packets.is_empty().then_some(CLEARED);
        self.packets.push(Packet {
            trusted_packet_sequence_id: SEQUENCE,
            sequence_flags,
            track_descriptor: Some(d),
            ..Packet::default()
        });
    }

    /// Adds a track of slices.
    pub fn track(&mut self, name: &str) -> Track {
        self.add(name, None)
    }

    /// Adds a track of a number.
    pub fn counter(&mut self, name: &str, bytes: bool) -> Track {
        let unit = if bytes { Unit::SizeBytes } else { Unit::Count };
        self.add(name, Some(Counter { unit: unit.into() }))
    }

    fn add(&mut self, name: &str, counter: Option<Counter>) -> Track {
        self.tracks += 1;
        self.describe(TrackDescriptor {
            uuid: self.tracks,
            name: Some(name.to_owned()),
            parent_uuid: Some(PROCESS),
            counter,
            ..TrackDescriptor::default()
        });
        Track(self.tracks)
    }

    fn event(&mut self, at: f64, event: TrackEvent) {
        self.packets.push(Packet {
            timestamp: Some(at.max(0.0).round() as u64),
            trusted_packet_sequence_id: SEQUENCE,
            track_event: Some(event),
            ..Packet::default()
        });
    }

    /// Adds a slice, with slices inside of it. Those must not overlap, and come in order.
    pub fn slice(&mut self, s: Slice, inside: impl FnOnce(&mut Trace)) {
        if self.packets.len() >= MAX_EVENTS {
            self.left_out += 1;
            return;
        }
        let (track, [begin, end]) = (s.track.0, s.time);
        let event = TrackEvent {
            kind: EventType::SliceBegin.into(),
            track_uuid: track,
            name: Some(s.name),
            debug_annotations: s.notes.into_iter().map(Note::annotation).collect(),
            flow_ids: s.from,
            terminating_flow_ids: s.to,
            ..TrackEvent::default()
        };
        self.event(begin, event);
        inside(self);
        let event =
            TrackEvent { kind: EventType::SliceEnd.into(), track_uuid: track, ..TrackEvent::default() };
        self.event(end.max(begin), event);
    }

    /// Sets a counter.
    pub fn count(&mut self, track: Track, at: f64, value: i64) {
        let event = TrackEvent {
            kind: EventType::Counter.into(),
            track_uuid: track.0,
            counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.event(at, event);
    }

    /// Writes the file, and returns the number of slices that were left out of it.
    pub fn write(self, path: &Path) -> Result<usize, Failure> {
        let bytes = TraceFile { packet: self.packets }.encode_to_vec();
        let written = kiln_files::replace(path, None, &bytes);
        written.map_err(|source| Failure::File { path: path.to_owned(), source })?;
        Ok(self.left_out)
    }
}
