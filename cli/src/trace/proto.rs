//! Messages of a Perfetto trace, as far as they are written here.

/// The file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TraceFile {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<Packet>,
}

/// One event, or the description of a track.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Packet {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// Beginning or end of a slice, or a counter's value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<Annotation>,
    #[prost(enumeration = "EventType", tag = "9")]
    pub kind: i32,
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// Description of a track.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<Process>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<Counter>,
}

/// A process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Process {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(string, tag = "6")]
    pub process_name: String,
}

/// A counter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Counter {
    #[prost(enumeration = "Unit", tag = "3")]
    pub unit: i32,
}

/// Unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    Unspecified = 0,
    TimeNs = 1,
    Count = 2,
    SizeBytes = 3,
}

/// A name with a value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Annotation {
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(double, optional, tag = "5")]
    pub double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    #[prost(string, tag = "10")]
    pub name: String,
}
