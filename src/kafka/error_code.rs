//! The only map from outcomes to wire codes.

/// An error code of the Kafka protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ErrorCode {
    /// 0
    #[default]
    None,
}
